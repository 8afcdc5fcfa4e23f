"""Inputs that are meant to hurt: bombs, lies about sizes, nesting, other programs' files, scripts.

`python -m tests.doors.hostile` hands every one of them to every reader it is made for, and says
the longest time, the most memory, and what was not answered by one sentence within the limits.
"""

import base64
import gzip
import io
import json
import pickle
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from tests.doors.readers import READERS
from tests.doors.sandbox import Outcome, Sandbox

SECONDS, MEGABYTES = 2.0, 100.0
MB = 1 << 20


@dataclass(frozen=True)
class Hostile:
    """One input for one reader."""

    reader: str
    what: str
    make: Callable[[], bytes]


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def _lying_tar() -> bytes:
    """A header that claims 8 GB, and nothing behind it."""
    info = _info("a.json")
    info.size = 8 << 30
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(512)


def _devices() -> bytes:
    return _tar((_info("dev", tarfile.CHRTYPE), b""), (_info("pipe", tarfile.FIFOTYPE), b""),
                (_info("dir", tarfile.DIRTYPE), b""))  # fmt: skip


def _links() -> bytes:
    return _tar((_info("a.json", tarfile.SYMTYPE, "/etc/passwd"), b""),
                (_info("b.json", tarfile.LNKTYPE, "a.json"), b""))  # fmt: skip


def _zip(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def _zip_slip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../../../tmp/evil.npy", b"x")
        link = zipfile.ZipInfo("logical_count.npy")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return out.getvalue()


def _laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    return f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]><graphml>&l9;</graphml>'.encode()


def _keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(count)) + b"}"


def _bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9, mtime=0)


XXE = b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><graphml>&x;</graphml>'
BIDI = "\u202e\u2066evil\u2069\u202c \u0000\u0007\u001b[31m\u200b = 1\n".encode()
SCRIPT = b'<script>alert(1)</script><img src=x onerror=alert(1)>,=cmd|" /C calc"!A0\n'
# What is handed to every reader.
EVERY: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a NUL": lambda: b"\0",
    "10 MB of one line": lambda: b"a" * (10 * MB),
    "10 MB of zeros": lambda: bytes(10 * MB),
    "10 MB of line ends": lambda: b"\n" * (10 * MB),
    "10 MB of commas": lambda: b"," * (10 * MB),
    "10 MB of brackets": lambda: b"[" * (10 * MB),
    "lists in lists": lambda: b"[" * 100_000 + b"]" * 100_000,
    "tables in tables": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "tags in tags": lambda: b"<graphml>" * 200_000,
    "200,000 keys": lambda: _keys(200_000),
    "not UTF-8": lambda: b"\xff\xfe\xfa" * 100_000,
    "UTF-16": lambda: "seed = 1\n".encode("utf-16") * 1000,
    "bidi and control characters": lambda: BIDI * 100,
    "a script": lambda: SCRIPT * 100,
    "no number": lambda: b'{"timestamp": NaN, "input_length": Infinity, "seed": 1e999}',
    "a number of 100,000 digits": lambda: b'{"seed": ' + b"9" * 100_000 + b"}",
    "a key of 24,000 parts": lambda: b".".join([b"a"] * 24_000) + b" = 1",
    "the same key again": lambda: b'{"seed": 1, ' + b'"seed": 2, ' * 1000 + b'"seed": 3}',
    "100 MB of zeros in gzip": lambda: _bomb(100 * MB),
    "gzip in gzip": lambda: gzip.compress(_bomb(100 * MB), 9, mtime=0),
    "half a gzip": lambda: gzip.compress(np.random.default_rng(1).bytes(MB), 1)[: MB // 2],
    "1,000 gzips": lambda: gzip.compress(b"{}", 1, mtime=0) * 1000,
    "zip slip": _zip_slip,
    "100 MB of zeros in zip": lambda: _zip(a=bytes(100 * MB)),
    "tar that climbs": lambda: _tar((_info("../../evil.json"), b"{}"), (_info("/etc/evil"), b"x")),
    "tar of links": _links,
    "tar of devices": _devices,
    "tar that lies": _lying_tar,
    "a pickle": lambda: pickle.dumps({"logical_count": [[1]]}),
    "laughs in XML": _laughs,
    "an entity from a file": lambda: XXE,
    "a program": lambda: b"\x7fELF" + bytes(range(256)) * 100,
    "a database": lambda: b"SQLite format 3\0" + bytes(4096),
    "parquet's name alone": lambda: b"PAR1" + b"x" * 1000 + b"PAR1",
}  # fmt: skip


def _link(text: bytes) -> bytes:
    return base64.urlsafe_b64encode(zlib.compress(text, 9)).rstrip(b"=")


def _scenario(**fields: object) -> bytes:
    return json.dumps({"schema": 2, "scenario": fields}).encode()


def _wide_parquet() -> bytes:
    """Half a megabyte that unpacks to 200 million rows."""
    out = io.BytesIO()
    zero = pl.repeat(0, 20_000_000, eager=True, dtype=pl.Int64)
    names = ("trace", "subagent", "t", "input_length", "output_length", "think_time", "hash_ids")
    pl.DataFrame(dict.fromkeys(names, zero)).write_parquet(out, compression="zstd")
    return out.getvalue()


def _npy(header: str) -> bytes:
    text = header.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _rows(count: int) -> bytes:
    row = b'{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}\n'
    return row * count


HUGE = _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (512, 262144), }")
CABLES = b"from,to,GB/s,ns,plane\n"
# What is made for one reader.
OWN: dict[str, dict[str, Callable[[], bytes]]] = {
    "link": {
        "100 MB in zlib": lambda: _link(bytes(100 * MB)),
        "too long": lambda: b"A" * 1_000_000,
        "deep": lambda: _link(b'{"schema":2,"scenario":' + b"[" * 50_000),
        "40,000 times a key": lambda: _link(
            b'{"schema":2,"scenario":{' + b'"a":1,' * 40_000 + b'"a":1}}'),
        "a schema with a point": lambda: _link(b'{"schema":2.0,"scenario":{}}'),
        "cut off": lambda: _link(_scenario(seed=1))[:-8],
        "another schema": lambda: _link(b'{"schema":99,"scenario":{}}'),
        "a machine that is none": lambda: _link(
            _scenario(supernode={"machine": "0" * 64}) + b"\n" + b"[" * 90_000
        ),
        "padding inside": lambda: b"AA==AA==",
    },
    "scenario": {
        "ever deeper tables": lambda: b"".join(b"[" + b"a." * (i % 15) + b"b%d]\n" % i
                                               for i in range(9000)),
        "lists in a value": lambda: b"a = " + b"[" * 100_000,
        "20,000 faults": lambda: b'[[faults]]\nelement = "die 0.0.0"\n' * 7000,
        "escapes": lambda: b'question = "' + b"\\u202e" * 40_000 + b'"',
        "quotes without end": lambda: b'a = """' + b'"' * 200_000,
        "a date for a number": lambda: b"seed = 1979-05-27T07:32:00Z",
        "hexadecimal": lambda: b"seed = 0x" + b"f" * 200_000,
    },
    "trace": {
        "a million rows": lambda: gzip.compress(_rows(200_000), 6, mtime=0),
        "a line of hashes": lambda: b'{"timestamp":0,"input_length":10,"output_length":1,'
                                    b'"hash_ids":[' + b"1," * 4_000_000 + b"1]}",
        "a million columns": lambda: b",".join([b"a"] * 1_000_000) + b"\n1\n",
        "10,000 files": lambda: gzip.compress(
            _tar(*((_info(f"data/chunk-{i}-trace.csv"), b"0,1\n") for i in range(10_001))), 6),
        "hashes beyond 64 bits": lambda: b'{"timestamp":0,"input_length":10,"output_length":1,'
                                         b'"hash_ids":[' + b"9" * 400 + b"]}",
        "a year 99999": lambda: b"TIMESTAMP,ContextTokens,GeneratedTokens\n99999-01-01,1,1\n",
    },
    "trace file": {"20 million rows in parquet": _wide_parquet},
    "counts": {
        "an array of 10^15 numbers": lambda: _npy(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000), }"),
        "an array of objects": lambda: _npy(
            "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }") + pickle.dumps([]),
        "code in a header": lambda: _npy("{'descr': __import__('os').system('true')}"),
        "a shape below zero": lambda: _npy(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 4), }") + bytes(64),
        "1 GB of zeros in npz": lambda: _zip(**{"logical_count.npy": HUGE + bytes(64 * MB)}),
        "a list of 4 million": lambda: b"[[" + b"1," * 4_000_000 + b"1]]",
        "layer 10^9": lambda: b"layer,expert,count\n999999999,1,1\n",
    },
    "machine": {
        "a million links": lambda: CABLES + b"".join(
            b"die %d.0.0,s,1,1,ub\n" % i for i in range(200_000)),
        "200,000 vertices": lambda: json.dumps(
            {"graph": {}, "nodes": [{"id": f"s{i}"} for i in range(200_000)], "edges": []}
        ).encode(),
        "everybody to everybody": lambda: json.dumps(
            {"graph": {}, "nodes": [{"id": f"die {i}.0.0"} for i in range(300)],
             "edges": [{"source": f"die {i}.0.0", "target": f"die {j}.0.0",
                        "capacity_bytes_per_s": 1e9, "latency_s": 1e-7, "plane": "ub"}
                       for i in range(300) for j in range(300) if i != j]}).encode(),
        "a die of node 10^9": lambda: CABLES + b"die 999999999.0.0,die 1.0.0,1,1,ub\n",
        "an endless attribute": lambda: b'<graphml a="' + b"x" * (5 * MB),
        "a rate of 1e999": lambda: CABLES + b"die 0.0.0,die 1.0.0,1e999,1,ub\n",
    },
    "library": {
        "tables of zeros": lambda: _tar(*(
            (_info(f"twin-1/table/{i:064x}.parquet"), bytes(MB)) for i in range(20))),
        "a header without end": lambda: b"x" * 512 * 20_000,
        "a thousand links": lambda: _tar(*(
            (_info(f"twin-1/run/{i:064x}.json", tarfile.SYMTYPE, "/etc/passwd"), b"")
            for i in range(1000))),
    },
    "settings": {
        "a table": lambda: b"supernode={nodes=1}",
        "two lines": lambda: b"seed=1\nhorizon_s=2",
        "a long key": lambda: b".".join([b"a"] * 24_000) + b"=1",
    },
    "query": {"climbing": lambda: b"../../../etc/passwd", "1,000 runs": lambda: b"a" * 22 * 1000},
}  # fmt: skip


def every() -> Iterator[Hostile]:
    """All of them, those made for one reader first."""
    for reader, cases in OWN.items():
        if reader in READERS:  # the readers of an extra go with its folder
            yield from (Hostile(reader, what, make) for what, make in cases.items())
    for reader in READERS:
        yield from (Hostile(reader, what, make) for what, make in EVERY.items())


def met(outcome: Outcome) -> bool:
    """One sentence (or, where it is sound after all, a value) within the limits."""
    return outcome.proper and outcome.cpu_s <= SECONDS and outcome.grown_mb <= MEGABYTES


def main() -> int:
    """Hand all to all, and report."""
    made: dict[Callable[[], bytes], bytes] = {}
    worst: dict[str, list[tuple[float, str]]] = {"s": [], "MB": []}
    unmet = count = 0
    with Sandbox() as sandbox:
        for case in every():
            data = made.get(case.make) or case.make()
            if case.what in EVERY:
                made[case.make] = data
            outcome = sandbox.read(case.reader, data)
            name = f"{case.reader}: {case.what}"
            worst["s"].append((outcome.cpu_s, name))
            worst["MB"].append((outcome.grown_mb, name))
            count += 1
            if not met(outcome):
                unmet += 1
                print(f"NOT MET {name}: {outcome.kind}, {outcome.cpu_s:.2f} s, "  # noqa: T201
                      f"{outcome.grown_mb:.0f} MB: {outcome.said[-300:]}", flush=True)  # fmt: skip
    print(f"{count} hostile inputs, {unmet} not met")  # noqa: T201
    for unit, figures in worst.items():
        told = ", ".join(f"{figure:.2f} {unit} ({name})" for figure, name in sorted(figures)[-3:])
        print(f"most: {told}")  # noqa: T201
    return int(unmet > 0)


if __name__ == "__main__":
    sys.exit(main())
