"""Expert counts from .npy, .npz or JSON [layers, experts] or [steps, layers, experts] (SGLang's
`logical_count`), an omni-infer placement [ranks, layers, experts], or CSV. A pickle is refused."""

import io
import tokenize
import zipfile
import zlib
from pathlib import Path
from struct import error as StructError
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, out
from twin.lab.files import printable, read_bytes
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
    """Expert counts of a file or an upload, with the limits of traces. Raises CountsError."""
    limits = limits or (UPLOAD if isinstance(source, bytes) else LOCAL)
    try:
        label, contents = _content(source, name, limits)
        if contents.startswith(PICKLE_MAGIC) or label.endswith((".pt", ".pth", ".pkl")):
            raise CountsError(UNSAFE.format(name=label))
        if contents.startswith((NPY_MAGIC, ZIP_MAGIC)):
            kind = "npy" if contents.startswith(NPY_MAGIC) else "npz"
            return _checked_table(label, kind, _array_of_numpy(label, contents, limits))
        piece = Piece(label, contents)
        if not (first_char := text_of(piece).lstrip()[:1]):
            raise CountsError(f"{label} is empty")
        if first_char in "{[":
            return _checked_table(label, "json", _array_of_json(piece))
        return _checked_table(label, "csv", _array_of_csv(piece))
    except TraceError as error:
        raise CountsError(str(error)) from None


def _content(source: str | Path | bytes, name: str | None, limits: Limits) -> tuple[str, bytes]:
    """(name for people, contents), unpacked from gzip; zip archives are returned as they are."""
    if is_path := not isinstance(source, bytes):
        name = name or Path(source).name
        source = read_bytes(Path(source), limits.packed_bytes, CountsError)
    is_zip = source.startswith(ZIP_MAGIC)
    if (is_zip or is_path) and len(source) > limits.packed_bytes:
        raise CountsError(_too_large(printable(name or "upload"), limits.packed_bytes))
    if is_zip:
        return printable(name or "upload"), source
    label, _, pieces = open_source(source, name, limits)
    files = list(pieces)
    if len(files) != 1:
        raise CountsError(f"{label} holds {len(files)} files: give one file of counts")
    return label, files[0].data


def _too_large(name: str, limit: int) -> str:
    """Sentence that refuses a file; limit: bytes of the largest that is read."""
    return f"{name} is larger than {limit >> 20} MB, the most that is read: sum its steps first"


def _array_of_numpy(name: str, data: bytes, limits: Limits) -> NDArray[Any]:
    """The array of an .npy file; of an .npz archive its only one, or logical_count."""
    try:
        array = np.load(io.BytesIO(data))
        if isinstance(array, np.lib.npyio.NpzFile):
            if any(member.endswith("data.pkl") for member in array.files):
                raise CountsError(UNSAFE.format(name=name))
            members = [key for key in array.files if key == "logical_count"] or array.files
            if len(members) != 1:
                raise CountsError(
                    f"{name} holds {len(members)} arrays, none named logical_count: keep the "
                    "counts alone"
                )
            assert array.zip is not None
            if array.zip.getinfo(f"{members[0]}.npy").file_size > limits.unpacked_bytes:
                raise CountsError(_too_large(name, limits.unpacked_bytes))
            array = np.asarray(array[members[0]])
    except CountsError:
        raise
    except BROKEN:
        raise CountsError(f"{name} is no sound array of numbers: save it again") from None
    if array.dtype.kind not in "iufb":
        raise CountsError(f"{name} holds {array.dtype} and not numbers: save an array of counts")
    return array


def _array_of_json(piece: Piece) -> NDArray[Any]:
    """The array of a JSON text, or of its logical_count. Raises CountsError."""
    body = decode_json(text_of(piece), piece.name, f"logical_count {SHAPES}")
    if isinstance(body, dict):
        if "logical_count" not in body:
            raise CountsError(f"{piece.name} has no logical_count: give it {SHAPES}")
        body = body["logical_count"]
    try:
        return np.array(body, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise CountsError(
            f"{piece.name} holds rows of different lengths, or other things than numbers: give "
            f"logical_count {SHAPES}"
        ) from None


def _array_of_csv(piece: Piece) -> NDArray[Any]:
    """Counts f8[layers, experts] of a CSV with the columns layer, expert and count; rows of the
    same layer and expert add up. Raises CountsError."""
    header, line_end, body = piece.data.partition(b"\n")
    chunks = []
    for cells, _ in csv_cells(Piece(piece.name, header.lower() + line_end + body)):
        layer, expert = (
            cells.numbers(_column(piece.name, cells, key), f"a whole number below {limit}",
                          limit - 1, whole=True)
            for key, limit in (("layer", MOST_LAYERS), ("expert", MOST_EXPERTS))
        )  # fmt: skip
        column = _column(piece.name, cells, "count")
        chunks.append((layer, expert, cells.numbers(column, "a number from 0 on", MOST_COUNT)))
    layer, expert, count = map(np.concatenate, zip(*chunks, strict=True))
    layers, layer_index = np.unique(layer, return_inverse=True)
    if (gap_index := np.flatnonzero(np.diff(layers) > 1)).size:
        missing_layer = int(layers[gap_index[0]]) + 1
        raise CountsError(
            f"{piece.name} has no row of layer {missing_layer}: give every MoE layer between others"
        )
    counts = np.zeros((layers.size, 1 + int(expert.max())))
    np.add.at(counts, (layer_index, expert.astype(np.int64)), count)
    return counts


def _column(name: str, cells: Cells, kind: str) -> str:
    """Name in this file of the column layer, expert or count (`kind`). Raises CountsError."""
    for column_name in COLUMNS[kind]:
        if cells.texts(column_name) is not None:
            return column_name
    raise CountsError(f"{name} line 1 has no column {kind}: begin with the line layer,expert,count")


def _checked_table(name: str, kind: str, array: NDArray[Any]) -> CountsTable:
    """Counts f8[layers, experts] of a file's array: steps are summed, placements become loads,
    first layers of zeros are left out. Raises CountsError if they cannot be counts."""
    shape_text = " x ".join(str(size) for size in array.shape)
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
    sums = array.sum(axis=0, dtype=np.float64) if array.ndim == 3 else array.astype(np.float64)
    note = f"{array.shape[0]} steps summed" if array.ndim == 3 else ""
    is_picked = sums.sum(axis=1) > 0
    if not is_picked.any():
        raise CountsError(f"{name} counts nothing: every number is 0")
    dense_layers = int(is_picked.argmax())
    if not is_picked[dense_layers:].all():
        missing_layer = dense_layers + int(is_picked[dense_layers:].argmin())
        raise CountsError(f"{name} counts nothing in layer {missing_layer}: leave out dense layers")
    if dense_layers:
        note = f"{note}; " if note else ""
        note += f"the first {dense_layers} layers count nothing and were left out as dense"
    return CountsTable(name, kind, np.ascontiguousarray(sums[dense_layers:]), note)


def _loads_of_placement(name: str, array: NDArray[Any]) -> tuple[Floats, str]:
    """Lower bounds of loads f8[layers, experts], mean 1, for which greedy copying makes a placement
    [ranks, layers, experts], and a note: r copies need load / mean >= (r - 1) experts / slots. The
    other experts share the rest evenly."""
    copies = array.sum(axis=0, dtype=np.float64)
    experts = copies.shape[1]
    slots = copies.sum(axis=1, keepdims=True)
    if (slots == experts).all():
        raise CountsError(
            f"{name} places every expert once: such a pattern says nothing about load; give one "
            "with redundant experts, or counts"
        )
    bound = (copies - 1.0) * experts / slots
    is_hot = bound > 1.0
    cold_load = (experts - (bound * is_hot).sum(axis=1, keepdims=True)) / (~is_hot).sum(
        axis=1, keepdims=True
    )
    load = np.where(is_hot, bound, np.maximum(cold_load, 0.0))
    return load, (
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
