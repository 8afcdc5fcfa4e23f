"""Sound files changed where it hurts: structure, types, numbers, encodings, nesting, packing.

A file is taken apart as its format is (a tree of JSON or TOML, lines and cells, tags), a few places
of it are changed, and it is put together again; then, sometimes, its bytes are.
"""

import base64
import gzip
import io
import json
import math
import re
import tarfile
import tomllib
import zlib
from random import Random
from typing import Any

import tomli_w

NUMBERS = [0, -1, 1, 2, 7, 2**31, 2**63, 2**64, 10**30, -(10**18), 0.5, 1e-300, 1e308, math.inf,
           math.nan, -0.0]  # fmt: skip
WORDS = ["", " ", "0", "-1", "nan", "1e999", "true", "null", "a\0b", "\u202eabc", "a\nb", "é" * 40,
         "x" * 5000, "../../etc/passwd", "<script>alert(1)</script>", "=1+1", "die 0.0.0", "node 1",
         "L1 0.0", "9" * 5000, "\ud800"]  # fmt: skip
DEEP = "@deep@"
Tree = Any


def _hostile(draw: Random) -> Any:
    """A value where another was expected."""
    kind = draw.randrange(8)
    if kind == 0:
        return DEEP
    if kind == 1:
        return draw.randint(-(10**6), 10**6)
    if kind == 2:
        return draw.uniform(-1e6, 1e6)
    if kind == 3:
        return "".join(chr(draw.randrange(1, 0x3000)) for _ in range(draw.randrange(12)))
    return draw.choice([*NUMBERS, *WORDS, None, True, False, [], {}])


def _put(text: str) -> bytes:
    """Text as bytes; nesting that no writer could write is put in afterwards."""
    deep = "[" * 3000 + "]" * 3000
    return text.replace(f'"{DEEP}"', deep).encode("utf-8", "surrogatepass")


def _places(tree: Tree) -> list[tuple[Any, Any]]:
    """(container, key) of every node below the root, without recursion."""
    places, stack = [], [tree]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(
            node, list) else ()  # fmt: skip
        for key in keys:
            places.append((node, key))
            stack.append(node[key])
    return places


def _change_tree(draw: Random, tree: Tree) -> Tree:
    """One place of a tree replaced, taken out, doubled, renamed, wrapped or swapped."""
    places = _places(tree)
    if not places:
        return _hostile(draw)
    node, key = places[draw.randrange(len(places))]
    how = draw.choice(["replace", "drop", "wrap", "copy", "rename", "scale"])
    if how == "drop":
        del node[key]
    elif how == "wrap":
        node[key] = draw.choice([[node[key]], {"a": node[key]}, [[], node[key]]])
    elif how == "copy":
        other, place = places[draw.randrange(len(places))]
        # A copy, for a tree must not come to hold itself.
        node[key] = json.loads(json.dumps(other[place], default=str))
    elif how == "rename" and isinstance(node, dict):
        node[draw.choice([*WORDS[:12], *[str(k) for k in node]])] = node.pop(key)
    elif how == "scale" and isinstance(node[key], list):
        node[key] = node[key] * draw.choice([0, 2, 100])
    else:
        node[key] = _hostile(draw)
    return tree


def _change_text(draw: Random, parts: list[str]) -> list[str]:
    """One part of a text cut at its separators replaced, taken out, doubled or swapped."""
    at = draw.randrange(len(parts))
    how = draw.choice(["replace", "drop", "double", "swap", "many"])
    if how == "drop":
        return parts[:at] + parts[at + 1 :]
    if how in ("double", "many"):
        return parts[:at] + [parts[at]] * (2 if how == "double" else 300) + parts[at + 1 :]
    if how == "swap":
        other = draw.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
        return parts
    word = _hostile(draw)
    return [*parts[:at], word if isinstance(word, str) else str(word)[:20_000], *parts[at + 1 :]]


def _text(data: bytes, cut: str, draw: Random, changes: int) -> bytes:
    parts = re.split(f"({cut})", data.decode("utf-8", "surrogateescape"))
    for _ in range(changes):
        parts = _change_text(draw, parts) or [""]
    return "".join(parts).encode("utf-8", "replace")


def _json(tree: Tree) -> bytes:
    return _put(json.dumps(tree, ensure_ascii=False))


def _changed(draw: Random, form: str, data: bytes) -> bytes:
    changes = draw.randint(1, 3)
    if form in ("csv", "xml"):
        return _text(data, r"[,\n]" if form == "csv" else r"""[<>"=\s]""", draw, changes)
    if form == "jsonl":
        tree: Tree = [json.loads(line) for line in data.split(b"\n") if line]
    elif form == "json":
        tree = json.loads(data)
    elif form == "toml":
        tree = tomllib.loads(data.decode())
    elif form == "link":
        packed = base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
        tree = json.loads(zlib.decompress(packed).partition(b"\n")[0])
    else:
        return data
    for _ in range(changes):
        tree = _change_tree(draw, tree)
    if form == "jsonl":
        return b"\n".join(_json(row) for row in tree) if isinstance(tree, list) else _json(tree)
    if form == "link":
        return base64.urlsafe_b64encode(zlib.compress(_json(tree))).rstrip(b"=")
    if form == "toml":
        try:
            return _put(tomli_w.dumps(tree))
        except (TypeError, AttributeError):  # a None has no words there, nor has a bare value
            return _text(data, r"[=\n.]", draw, changes)
    return _json(tree)


def _bytes(draw: Random, data: bytes) -> bytes:
    """Bytes flipped, cut out, put in or repeated."""
    at = draw.randint(0, len(data))
    how = draw.choice(["flip", "cut", "end", "put", "repeat"])
    if how == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ draw.randint(1, 255)]) + data[at + 1 :]
    if how == "cut":
        return data[:at] + data[at + draw.randint(1, 64) :]
    if how == "end":
        return data[:at]
    if how == "repeat":
        return data[:at] + data[at : at + 64] * draw.choice([2, 500]) + data[at:]
    return data[:at] + draw.randbytes(draw.randrange(40)) + data[at:]


def _tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("a/b.json", "../c"):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


WRAPS = {
    "as it is": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "gzip twice": lambda data: gzip.compress(gzip.compress(data, 1, mtime=0), 1, mtime=0),
    "half a gzip": lambda data: gzip.compress(data, 1, mtime=0)[: len(data) // 2],
    "tar": _tar,
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "utf-16": lambda data: data.decode("utf-8", "replace").encode("utf-16"),
    "carriage returns": lambda data: data.replace(b"\n", b"\r\n"),
    "one line": lambda data: data.replace(b"\n", b" "),
}


def mutant(samples: list[tuple[str, bytes]], number: int) -> bytes:
    """One of some sound files, changed: always the same of a number."""
    draw = Random(f"mutant {number}")
    form, data = draw.choice(samples)
    if form != "binary" and draw.randrange(10):
        data = _changed(draw, form, data)
    for _ in range(draw.choice([0, 0, 0, 0, 1, 3] if form != "binary" else [1, 2, 6])):
        data = _bytes(draw, data)
    return WRAPS[draw.choice([*["as it is"] * len(WRAPS), *WRAPS])](data)
