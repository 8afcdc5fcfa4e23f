"""Expert counts from .npy, .npz or JSON [layers, experts] or [steps, layers, experts] (SGLang's
`logical_count`), an omni-infer placement [ranks, layers, experts], or CSV. A pickle is refused."""

import csv
import io
import json
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from twin.hardware.graph_text import short_lines
from twin.lab.files import printable, read_bytes
from twin.lab.kinds import CountsTable, Floats
from twin.lab.traces.source import LOCAL, UPLOAD, ZIP_MAGIC, Limits, TraceError, open_source

MOST_LAYERS, MOST_EXPERTS = 512, 4096
MOST_COUNT = 1e18
NPY_MAGIC = b"\x93NUMPY"
PICKLE_MAGIC = b"\x80"
COLUMNS = {
    "layer": ("layer", "moe_layer", "layer_id"),
    "expert": ("expert", "expert_id", "logical_expert"),
    "count": ("count", "counts", "tokens", "load"),
}
UNSAFE = (
    "{name} is a PyTorch file: reading one can run code hidden in it, so it is refused; save its "
    "logical_count as .npy, .npz or JSON instead"
)
BROKEN_HEADER = (
    ValueError, EOFError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError,
    tokenize.TokenError,
)  # fmt: skip
BROKEN_ZIP = (
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError,
    OSError, ValueError, KeyError,
)  # fmt: skip
SHAPES = "[layers, experts] or [steps, layers, experts]"


class CountsError(ValueError):
    """A file of expert counts that cannot be read: what, where, and what would be right."""


def read_counts(
    source: str | Path | bytes, name: str | None = None, limits: Limits | None = None
) -> CountsTable:
    """Expert counts of a file or an upload, with the limits of traces. Raises CountsError."""
    limits = limits or (UPLOAD if isinstance(source, bytes) else LOCAL)
    label, data = _content(source, name, limits)
    if data.startswith(ZIP_MAGIC):
        return _table(label, "npz", _npz(label, data, limits))
    if data.startswith(PICKLE_MAGIC) or label.endswith((".pt", ".pth", ".pkl")):
        raise CountsError(UNSAFE.format(name=label))
    if data.startswith(NPY_MAGIC):
        return _table(label, "npy", _npy(label, io.BytesIO(data), len(data)))
    text = _text(label, data)
    if text.lstrip()[:1] in ("{", "["):
        return _table(label, "json", _json(label, text))
    return _table(label, "csv", _csv(label, text))


def _content(source: str | Path | bytes, name: str | None, limits: Limits) -> tuple[str, bytes]:
    """(name for people, contents), unpacked from gzip; zip archives are returned as they are."""
    if from_disk := not isinstance(source, bytes):
        name = name or Path(source).name
        source = read_bytes(Path(source), limits.packed_bytes, CountsError)
    zipped = source.startswith(ZIP_MAGIC)
    if (zipped or from_disk) and len(source) > limits.packed_bytes:
        raise CountsError(_too_large(printable(name or "upload"), limits.packed_bytes))
    if zipped:
        return printable(name or "upload"), source
    try:
        label, _, pieces = open_source(source, name, limits)
        files = list(pieces)
    except TraceError as error:
        raise CountsError(str(error)) from None
    if len(files) != 1:
        raise CountsError(f"{label} holds {len(files)} files: give one file of counts")
    return label, files[0].data


def _too_large(name: str, most: int) -> str:
    return f"{name} is larger than {most >> 20} MB, the most that is read: sum its steps first"


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CountsError(
            f"{name} is no array, JSON or CSV (byte {error.start} is not text): save the counts as "
            ".npy, .npz, JSON or a CSV of layer, expert, count"
        ) from None


def _npy(name: str, stream: IO[bytes], size: int) -> NDArray[Any]:
    """Array of an .npy file with a number of bytes, to which its header is limited."""
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, by_column, kind = read_header(stream)
    except BROKEN_HEADER:
        raise CountsError(f"{name} has a broken header: save the array again") from None
    if kind.hasobject or kind.kind not in "iufb":
        raise CountsError(f"{name} holds {kind} and not numbers: save an array of counts")
    bytes_left, bytes_needed = size - stream.tell(), math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or bytes_needed != bytes_left:
        raise CountsError(
            f"{name} should hold {bytes_needed:,} bytes of {shape} numbers but holds "
            f"{bytes_left:,}: copy it again"
        )
    body = stream.read(bytes_needed)
    return np.frombuffer(body, kind).reshape(shape, order="F" if by_column else "C")


def _npz(name: str, data: bytes, limits: Limits) -> NDArray[Any]:
    """Counts of a .npz file: `logical_count`, or its only array. Raises CountsError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            arrays = [n for n in names if n.endswith(".npy")]
            if not arrays:
                if any(n.endswith("data.pkl") for n in names):
                    raise CountsError(UNSAFE.format(name=name))
                raise CountsError(f"{name} is a zip archive without an array: save one .npz array")
            if "logical_count.npy" in arrays:
                arrays = ["logical_count.npy"]
            if len(arrays) != 1:
                raise CountsError(
                    f"{name} holds {len(arrays)} arrays, none named logical_count: keep the counts "
                    "alone"
                )
            size = archive.getinfo(arrays[0]).file_size
            if size > limits.unpacked_bytes:
                raise CountsError(_too_large(name, limits.unpacked_bytes))
            with archive.open(arrays[0]) as member:
                return _npy(f"{name} ({printable(arrays[0])})", member, size)
    except CountsError:
        raise
    except BROKEN_ZIP:
        raise CountsError(f"{name} is not a sound .npz file: save it again") from None


def _json(name: str, text: str) -> NDArray[Any]:
    """Counts of a JSON file. Raises CountsError."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise CountsError(f"{name} is not sound JSON{place}: save it again") from None
    if isinstance(body, dict):
        if "logical_count" not in body:
            raise CountsError(f"{name} has no logical_count: give it {SHAPES}")
        body = body["logical_count"]
    try:
        return np.array(body, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise CountsError(
            f"{name} holds rows of different lengths, or other things than numbers: give "
            f"logical_count {SHAPES}"
        ) from None


def _csv(name: str, text: str) -> NDArray[Any]:
    """Counts of a CSV file with columns layer, expert and count. Raises CountsError."""
    rows = csv.reader(short_lines(io.StringIO(text, newline=None)))
    try:
        counts_by_expert: dict[tuple[int, int], float] = {}
        header = [cell.strip().lower() for cell in next(rows, [])]
        places = [_column(name, header, column) for column in COLUMNS]
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            layer, expert, count = _cells(name, rows.line_num, row, places)
            counts_by_expert[layer, expert] = counts_by_expert.get((layer, expert), 0.0) + count
    except csv.Error as error:
        raise CountsError(f"{name}, line {rows.line_num}: {error}; save the CSV again") from None
    if not counts_by_expert:
        raise CountsError(f"{name} has no rows: give one row of layer, expert, count for each")
    layers = sorted({layer for layer, _ in counts_by_expert})
    if layers != list(range(layers[0], layers[0] + len(layers))):
        gap = next(n for n in range(layers[0], layers[-1]) if n not in set(layers))
        raise CountsError(f"{name} has no row of layer {gap}: give every MoE layer between others")
    counts = np.zeros((len(layers), 1 + max(expert for _, expert in counts_by_expert)))
    for (layer, expert), count in counts_by_expert.items():
        counts[layer - layers[0], expert] = count
    return counts


def _column(name: str, header: list[str], what: str) -> int:
    """Position of a column by any of its names. Raises CountsError."""
    for column_name in COLUMNS[what]:
        if column_name in header:
            return header.index(column_name)
    names = printable(", ".join(header))[:80]
    raise CountsError(
        f"{name}, line 1: no column {what} in '{names}': begin with the line layer,expert,count"
    )


def _cells(name: str, line: int, row: list[str], places: list[int]) -> tuple[int, int, float]:
    """(layer, expert, count) of one line. Raises CountsError."""
    try:
        layer, expert, count = int(row[places[0]]), int(row[places[1]]), float(row[places[2]])
    except (ValueError, IndexError):
        raise CountsError(
            f"{name}, line {line}: '{printable(','.join(row))[:60]}' is not layer, expert, count: "
            "give two whole numbers and a number"
        ) from None
    if not (0 <= layer < MOST_LAYERS and 0 <= expert < MOST_EXPERTS):
        raise CountsError(
            f"{name}, line {line}: layer {str(layer)[:20]}, expert {str(expert)[:20]} must be from "
            f"0 and below {MOST_LAYERS} layers, {MOST_EXPERTS} experts"
        )
    if not 0.0 <= count <= MOST_COUNT:
        raise CountsError(f"{name}, line {line}: the count {count:g} must be 0 or more")
    return layer, expert, count


def _table(name: str, kind: str, array: NDArray[Any]) -> CountsTable:
    """Counts from any array of a file; raises CountsError if it cannot be counts."""
    shape = " x ".join(str(n) for n in array.shape)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise CountsError(f"{name} holds an array of {shape or 'one number'}: give {SHAPES}")
    layers, experts = array.shape[-2:]
    if layers > MOST_LAYERS or experts > MOST_EXPERTS:
        raise CountsError(
            f"{name} holds {layers} layers x {experts} experts: at most {MOST_LAYERS} x "
            f"{MOST_EXPERTS} are read"
        )
    if not np.isfinite(array).all() or (array < 0).any() or (array > MOST_COUNT).any():
        place = np.argwhere(~(np.isfinite(array) & (array >= 0) & (array <= MOST_COUNT)))[0]
        raise CountsError(
            f"{name} holds {array[tuple(place)]} at {place.tolist()}: counts are 0 or more"
        )
    if array.ndim == 3 and array.max() <= 1 and array.sum(axis=0).min() >= 1:
        counts, note = _from_placement(name, array)
        return CountsTable(name, "omni placement", counts, note)
    total = array.sum(axis=0, dtype=np.float64) if array.ndim == 3 else array.astype(np.float64)
    note = f"{array.shape[0]} steps summed" if array.ndim == 3 else ""
    picked = np.flatnonzero(total.sum(axis=1) > 0)
    if not picked.size:
        raise CountsError(f"{name} counts nothing: every number is 0")
    dense = int(picked[0])
    if picked.size != layers - dense:
        missing = next(n for n in range(dense, layers) if n not in set(picked.tolist()))
        raise CountsError(f"{name} counts nothing in layer {missing}: leave out dense layers")
    if dense:
        note = f"{note}; " if note else ""
        note += f"the first {dense} layers count nothing and were left out as dense"
    return CountsTable(name, kind, np.ascontiguousarray(total[dense:]), note)


def _from_placement(name: str, array: NDArray[Any]) -> tuple[Floats, str]:
    """Lower bounds of loads f8[layers, experts], mean 1, that explain greedy copies [ranks, layers,
    experts]: for r copies load / mean >= (r - 1) experts / slots. The other experts share the rest
    evenly."""
    copies = array.sum(axis=0, dtype=np.float64)
    experts = copies.shape[1]
    slots = copies.sum(axis=1, keepdims=True)
    if (slots == experts).all():
        raise CountsError(
            f"{name} places every expert once: such a pattern says nothing about load; give one "
            "with redundant experts, or counts"
        )
    bound = (copies - 1.0) * experts / slots
    hot = bound > 1.0
    cold_share = (experts - (bound * hot).sum(axis=1, keepdims=True)) / (~hot).sum(
        axis=1, keepdims=True
    )
    load = np.where(hot, bound, np.maximum(cold_share, 0.0))
    return load, (
        "a placement, not counts: the least loads for which greedy copying makes it, the other "
        "experts alike"
    )
