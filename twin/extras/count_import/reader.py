"""Expert counts from .npy, .npz or JSON [layers, experts] or [steps, layers, experts] (SGLang's
`logical_count`), an omni-infer placement [ranks, layers, experts], or CSV. A pickle is refused."""

import io
import tokenize
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from struct import error as StructError
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, out
from twin.lab.files import read_bytes
from twin.lab.kinds import CountsTable, Floats
from twin.lab.store import open_store
from twin.lab.traces.requests import Cells, csv_cells, decode_json, text_of
from twin.lab.traces.source import LOCAL, UPLOAD, ZIP_MAGIC, Limits, Piece, TraceError, open_source

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
BROKEN = (
    ValueError, EOFError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError, OSError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, StructError, NotImplementedError,
    RuntimeError,
)  # fmt: skip
SHAPES = "[layers, experts] or [steps, layers, experts]"


class CountsError(ValueError):
    """A file of expert counts that cannot be read: what, where, and what would be right."""


def read_counts(
    source: str | Path | bytes, name: str | None = None, limits: Limits | None = None
) -> CountsTable:
    """Expert counts of a file, or of an upload (bytes) called `name`; limits: of its size, by
    default those of files or of uploads. Raises CountsError."""
    limits = limits or (UPLOAD if isinstance(source, bytes) else LOCAL)
    limits = replace(limits, as_given=ZIP_MAGIC, remedy="sum its steps first")  # .npz is a zip
    if not isinstance(source, bytes):
        name = name or Path(source).name
        source = read_bytes(Path(source), limits.packed_bytes, CountsError)
    try:
        label, _, pieces = open_source(source, name, limits)
        unpacked_files = list(pieces)
        if len(unpacked_files) != 1:
            raise CountsError(f"{label} holds {len(unpacked_files)} files: give one file of counts")
        contents = unpacked_files[0].data
        if contents.startswith(PICKLE_MAGIC) or label.endswith((".pt", ".pth", ".pkl")):
            raise CountsError(UNSAFE.format(name=label))
        if contents.startswith((NPY_MAGIC, ZIP_MAGIC)):
            file_kind = "npy" if contents.startswith(NPY_MAGIC) else "npz"
            return _checked_table(label, file_kind, _array_of_numpy(label, contents, limits))
        piece = Piece(label, contents)
        if not (first_char := text_of(piece).lstrip()[:1]):
            raise CountsError(f"{label} is empty")
        if first_char in "{[":
            return _checked_table(label, "json", _array_of_json(piece))
        return _checked_table(label, "csv", _counts_of_csv(piece))
    except TraceError as error:
        raise CountsError(str(error)) from None


def _array_of_numpy(name: str, data: bytes, limits: Limits) -> NDArray[Any]:
    """The array of an .npy file, or of an .npz archive: that named `logical_count`, or the only
    one; data: its bytes; name: of the file. Raises CountsError."""
    try:
        array = np.load(io.BytesIO(data))
        if isinstance(array, np.lib.npyio.NpzFile):
            if any(file_name.endswith("data.pkl") for file_name in array.files):
                raise CountsError(UNSAFE.format(name=name))
            array_names = [key for key in array.files if key == "logical_count"] or array.files
            if len(array_names) != 1:
                raise CountsError(
                    f"{name} holds {len(array_names)} arrays, none named logical_count: keep the "
                    "counts alone"
                )
            assert array.zip is not None
            if array.zip.getinfo(f"{array_names[0]}.npy").file_size > limits.unpacked_bytes:
                limit_text = f"{limits.unpacked_bytes >> 20} MB, the most that is read"
                raise CountsError(f"{name} is larger than {limit_text}: {limits.remedy}")
            array = np.asarray(array[array_names[0]])
    except CountsError:
        raise
    except BROKEN:
        raise CountsError(f"{name} is no sound array of numbers: save it again") from None
    if array.dtype.kind not in "iufb":
        raise CountsError(f"{name} holds {array.dtype} and not numbers: save an array of counts")
    return array


def _array_of_json(piece: Piece) -> NDArray[Any]:
    """The array of a JSON text, or of its logical_count. Raises CountsError."""
    counts_json = decode_json(text_of(piece), piece.name, f"logical_count {SHAPES}")
    if isinstance(counts_json, dict):
        if "logical_count" not in counts_json:
            raise CountsError(f"{piece.name} has no logical_count: give it {SHAPES}")
        counts_json = counts_json["logical_count"]
    try:
        return np.array(counts_json, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise CountsError(
            f"{piece.name} holds rows of different lengths, or other things than numbers: give "
            f"logical_count {SHAPES}"
        ) from None


def _counts_of_csv(piece: Piece) -> NDArray[Any]:
    """Counts f8[layers, experts] of a CSV with the columns layer, expert and count; rows of the
    same layer and expert add up. Raises CountsError."""
    header, line_end, body = piece.data.partition(b"\n")
    column_lists = []
    for cells, _ in csv_cells(Piece(piece.name, header.lower() + line_end + body)):
        row_layers, row_experts = (
            cells.numbers(_column_header(piece.name, cells, column_kind),
                          f"a whole number below {limit}", limit - 1, whole=True)
            for column_kind, limit in (("layer", MOST_LAYERS), ("expert", MOST_EXPERTS))
        )  # fmt: skip
        column = _column_header(piece.name, cells, "count")
        piece_counts = cells.numbers(column, "a number from 0 on", MOST_COUNT)
        column_lists.append((row_layers, row_experts, piece_counts))
    row_layers, row_experts, row_counts = map(np.concatenate, zip(*column_lists, strict=True))
    layer_numbers, row_layer_indices = np.unique(row_layers, return_inverse=True)
    if (gap_index := np.flatnonzero(np.diff(layer_numbers) > 1)).size:
        missing_layer = int(layer_numbers[gap_index[0]]) + 1
        raise CountsError(
            f"{piece.name} has no row of layer {missing_layer}: give every MoE layer between others"
        )
    counts = np.zeros((layer_numbers.size, 1 + int(row_experts.max())))
    np.add.at(counts, (row_layer_indices, row_experts.astype(np.int64)), row_counts)
    return counts


def _column_header(name: str, cells: Cells, kind: str) -> str:
    """This file's header for the column `kind`: layer, expert or count. Raises CountsError."""
    for header in COLUMNS[kind]:
        if cells.texts(header) is not None:
            return header
    raise CountsError(f"{name} line 1 has no column {kind}: begin with the line layer,expert,count")


def _checked_table(name: str, file_kind: str, array: NDArray[Any]) -> CountsTable:
    """Counts f8[layers, experts] of the array of a file: steps are summed, placements become loads,
    first layers of zeros are left out; file_kind: the file's format. Raises CountsError."""
    shape_text = " x ".join(str(axis_size) for axis_size in array.shape)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise CountsError(f"{name} holds an array of {shape_text or 'one number'}: give {SHAPES}")
    layers, experts = array.shape[-2:]
    if layers > MOST_LAYERS or experts > MOST_EXPERTS:
        raise CountsError(
            f"{name} holds {layers} layers x {experts} experts: at most {MOST_LAYERS} x "
            f"{MOST_EXPERTS} are read"
        )
    if not (is_valid := (array >= 0) & (array <= MOST_COUNT)).all():
        bad_index = np.argwhere(~is_valid)[0]
        raise CountsError(
            f"{name} holds {array[tuple(bad_index)]} at {bad_index.tolist()}: counts are 0 or more"
        )
    if array.ndim == 3 and array.max() <= 1 and array.sum(axis=0).min() >= 1:
        counts, note = _loads_of_placement(name, array)
        return CountsTable(name, "omni placement", counts, note)
    summed_counts = (
        array.sum(axis=0, dtype=np.float64) if array.ndim == 3 else array.astype(np.float64)
    )
    note = f"{array.shape[0]} steps summed" if array.ndim == 3 else ""
    has_counts = summed_counts.sum(axis=1) > 0
    if not has_counts.any():
        raise CountsError(f"{name} counts nothing: every number is 0")
    dense_layers = int(has_counts.argmax())
    if not has_counts[dense_layers:].all():
        missing_layer = dense_layers + int(has_counts[dense_layers:].argmin())
        raise CountsError(f"{name} counts nothing in layer {missing_layer}: leave out dense layers")
    if dense_layers:
        note = f"{note}; " if note else ""
        note += f"the first {dense_layers} layers count nothing and were left out as dense"
    return CountsTable(name, file_kind, np.ascontiguousarray(summed_counts[dense_layers:]), note)


def _loads_of_placement(name: str, array: NDArray[Any]) -> tuple[Floats, str]:
    """(loads, note): the least loads f8[layers, experts], mean 1, for which greedy copying makes
    the placement `array` [ranks, layers, experts]. An expert with r copies has a load of at least
    (r - 1) experts / slots; the other experts share the remaining load evenly."""
    copies = array.sum(axis=0, dtype=np.float64)
    experts = copies.shape[1]
    layer_slots = copies.sum(axis=1, keepdims=True)
    if (layer_slots == experts).all():
        raise CountsError(
            f"{name} places every expert once: such a pattern says nothing about load; give one "
            "with redundant experts, or counts"
        )
    least_load = (copies - 1.0) * experts / layer_slots
    is_hot = least_load > 1.0
    cold_load = (experts - (least_load * is_hot).sum(axis=1, keepdims=True)) / (~is_hot).sum(
        axis=1, keepdims=True
    )
    loads = np.where(is_hot, least_load, np.maximum(cold_load, 0.0))
    return loads, (
        "a placement, not counts: the least loads for which greedy copying makes it, the other "
        "experts alike"
    )


def import_counts(
    counts: Annotated[Path, typer.Argument(help="Expert counts: .npy, .npz, JSON or CSV.")],
    as_json: AsJson = False,
) -> None:
    """Import counts of how often each expert was picked."""
    table = read_counts(counts)
    digest = open_store().counts.save(table)
    layers, experts = table.counts.shape
    answer = {"counts": digest, "layers": layers, "experts": experts, "note": table.note}
    end_with_json(answer, as_json)
    description = f"{table.name}: {experts:,} experts of {layers} layers. {table.note}".rstrip()
    settings_text = f"--set experts.popularity=imported --set experts.counts.digest={digest}"
    out.print(escape(f"{description}\nAsk for it with {settings_text}"), soft_wrap=True)
