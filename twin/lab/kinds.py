"""Kinds of values that can be imported and stored by digest: each is taken apart into a row and a
few tables and joined again (`store.handle`)."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace as NoName
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from twin.hardware.imported import ImportedMachine, available_machine
from twin.hooks import Hook, Reader, hooks_of
from twin.scenario import Scenario
from twin.workload.requests import TraceTable


class Named(Protocol):
    """A value that knows its own digest."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the value's content."""


T = TypeVar("T", bound=Named)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parts:
    """A value split into parts; `about` is JSON of at most some kilobytes, tables may be large."""

    name: str
    format: str
    about: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame]  # the rows of the first are those that lists count


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value that can be stored by digest."""

    key: str  # in the database, and in sentences: "no trace here has the id ..."
    reader: Hook | None  # makes one of (bytes, name); ValueError: one sentence; None: none is here
    split: Callable[[T], Parts]
    join: Callable[[Parts], T]  # KeyError, TypeError, ValueError: another version made the parts
    named: Callable[[Scenario], Any] = lambda _: None  # `digest` and `name` of what a scenario uses
    absent: str = ""  # that one of that name is not stored here
    in_use: str = ""  # "this trace is": begins the sentence that says who uses it
    smaller: str = ""  # what to do with one that is too large
    at_hand: Callable[[str], bool] = lambda _: False  # of a digest: here though nothing stores it


OFFSET, SEGMENTS = "segment_offset", ("segment_first", "segment_blocks")
COUNT = "segments"  # of each request, stored instead of the offsets


def _split_trace(trace: TraceTable) -> Parts:
    """Split a trace: tables of requests and of their segments of KV blocks, the rest as JSON."""
    field_values = {field.name: getattr(trace, field.name) for field in fields(trace)}
    request_columns = {COUNT: np.diff(field_values.pop(OFFSET)).astype(np.int32)}
    segment_columns = {name: field_values.pop(name) for name in SEGMENTS}
    name, format_name = field_values.pop("name"), field_values.pop("format")
    request_columns |= {
        name: value for name, value in field_values.items() if isinstance(value, np.ndarray)
    }
    attributes = {
        name: value for name, value in field_values.items() if name not in request_columns
    }
    tables = {"requests": pl.DataFrame(request_columns), "segments": pl.DataFrame(segment_columns)}
    return Parts(name, format_name, attributes, tables)


def _join_trace(parts: Parts) -> TraceTable:
    """The trace joined from its parts."""
    frames = (parts.tables["requests"], parts.tables["segments"])
    columns: dict[str, Any] = {
        column.name: column.to_numpy() for frame in frames for column in frame
    }
    columns[OFFSET] = np.concatenate(([0], np.cumsum(columns.pop(COUNT), dtype=np.int64)))
    attributes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in parts.about.items()
    }
    return TraceTable(name=parts.name, format=parts.format, **(columns | attributes))


@dataclass(frozen=True)
class CountsTable:
    """Number of picks of each expert in each MoE layer, f8[layers, experts]; note: its origin."""

    name: str
    format: str
    counts: Floats
    note: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the shape and the counts (little-endian f8, by row)."""
        header = "expert counts 1 {} {}\n".format(*self.counts.shape).encode()
        return hashlib.sha256(
            header + np.ascontiguousarray(self.counts, "<f8").tobytes()
        ).hexdigest()


def _split_counts(table: CountsTable) -> Parts:
    """Split a table of expert counts: one column of counts, and its shape as JSON."""
    layer_count, expert_count = table.counts.shape
    attributes = {"layers": layer_count, "experts": expert_count, "note": table.note}
    count_frame = pl.DataFrame({"count": table.counts.ravel()})
    return Parts(table.name, table.format, attributes, {"counts": count_frame})


def _join_counts(parts: Parts) -> CountsTable:
    """The table of expert counts joined from its parts."""
    shape = (parts.about["layers"], parts.about["experts"])
    counts = parts.tables["counts"]["count"].to_numpy().reshape(shape)
    return CountsTable(parts.name, parts.format, counts.astype(np.float64), parts.about["note"])


def _split_machine(machine: ImportedMachine) -> Parts:
    """Split a machine: a table of vertices and one of links, attributes as JSON."""
    vertex_rows = [(name, json.dumps(attrs, sort_keys=True)) for name, attrs in machine.vertices]
    vertices = pl.DataFrame(vertex_rows, ["vertex", "data"], orient="row")
    link_rows = [(*ends, json.dumps(attrs, sort_keys=True)) for *ends, attrs in machine.links]
    links = pl.DataFrame(link_rows, ["tail", "head", "data"], orient="row")
    attributes = {"graph": dict(machine.about), "npus": machine.npus}
    return Parts(machine.name, "machine", attributes, {"vertices": vertices, "links": links})


def _join_machine(parts: Parts) -> ImportedMachine:
    """The machine joined from its parts."""
    vertices, links = parts.tables["vertices"], parts.tables["links"]
    vertex_rows = [(name, json.loads(attrs)) for name, attrs in vertices.iter_rows()]
    link_rows = [(tail, head, json.loads(attrs)) for tail, head, attrs in links.iter_rows()]
    return ImportedMachine(parts.name, parts.about["graph"], vertex_rows, link_rows)


TRACE = Kind(
    key="trace", reader=Hook("trace", "twin.lab.traces.reader:read_trace"), split=_split_trace,
    join=_join_trace, named=lambda s: s.workload.trace if s.workload.arrivals == "trace" else None,
    absent="the trace {} is not stored here: import its file first", in_use="this trace is",
    smaller="keep only its first requests",
)  # fmt: skip
COUNTS = Kind(
    key="table of expert counts", reader=hooks_of(Reader).get("table of expert counts"),
    split=_split_counts, join=_join_counts,
    named=lambda s: s.experts.counts if s.experts.popularity == "imported" else None,
    absent="the expert counts {} are not stored here: import their file first",
    in_use="these counts are", smaller="sum its steps first",
)  # fmt: skip
MACHINE = Kind(
    key="machine", reader=Hook("machine", "twin.lab.machines:read_machine"), split=_split_machine,
    join=_join_machine,
    named=lambda s: NoName(digest=s.supernode.machine, name="") if s.supernode.imported else None,
    absent="the machine {} is not stored here: ask for its file and import that first",
    in_use="this machine is", smaller="leave out what serves no NPU",
    at_hand=lambda digest: available_machine(digest) is not None,
)  # fmt: skip
KINDS: tuple[Kind[Any], ...] = (TRACE, COUNTS, MACHINE)
