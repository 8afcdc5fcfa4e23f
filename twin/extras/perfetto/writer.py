"""A run as a Chrome trace for ui.perfetto.dev: an instance is a process, an iteration a slice."""

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Annotated

import polars as pl
import typer
from rich.markup import escape

from twin.commands.terminal import Settings, bytes_out, err, out, progress_bar
from twin.engine.window import Window
from twin.extras.perfetto import tracks
from twin.extras.perfetto.tracks import FIRST_STREAM, ITERATIONS, KV_IN, Event, Instance, Track, ns
from twin.lab.explain.streams import mean_load_timelines
from twin.lab.files import check_writable, open_atomic, printable
from twin.lab.runs import watched
from twin.metrics.events import Kind
from twin.metrics.measures import seconds
from twin.model.timeline import Timeline

Sink = IO[bytes] | gzip.GzipFile  # where bytes go: a file, a pipe, a compressor

SPAN_S = 2.0  # how much of a run is written by default
MOST_EVENTS = 200_000

ROOM_FOR_COUNTERS = 0.2  # of all events, at most
ROOM_FOR_WORK = 0.55  # at most; the rest is for requests and streams


class TraceError(ValueError):
    """An invalid request for a trace, in one sentence."""


@dataclass(frozen=True, slots=True)
class Written:
    """Contents of a written trace."""

    events: int
    left_out: int  # slices and flows for which there was no room
    begin_s: float
    end_s: float

    @property
    def sentence(self) -> str:
        """The number of events, the span and what was left out, as a sentence."""
        text = f"{self.events:,} events from {self.begin_s:g} s to {self.end_s:g} s of the run"
        if self.left_out:
            text += f"; {self.left_out:,} more had no room: ask for a shorter span"
        return text + "."


def write_trace(
    run: watched.Source, to: Path | Sink, begin_s: float | None = None, end_s: float | None = None,
    most_events: int = MOST_EVENTS, *, may_be_empty: bool = False,
) -> Written:  # fmt: skip
    """Write the trace of a run's span to a file (.gz: compressed) or a stream; by default SPAN_S
    after the warm-up or at the first fault. most_events: at most. Raises TraceError if the run has
    no such span or, unless it `may_be_empty`, no request in it."""
    begin_s, end_s = span_of(run, begin_s, end_s)
    if not may_be_empty:
        has_ended = (pl.col("finish_s") < begin_s).fill_null(value=False)
        if not run.tables["requests"].filter((pl.col("arrival_s") < end_s) & ~has_ended).height:
            span_text = f"between {begin_s:g} s and {end_s:g} s"
            raise TraceError(f"nothing is in the machine {span_text}: try another span")
    if most_events < 1000:
        raise TraceError(f"a trace of at most {most_events} events holds nothing: give it 1000")
    # Cut here and not while writing, so that no arrow points at a slice that is missing.
    phases = run.tables["operators"].partition_by("phase")
    events_per_pass = 1 + max((phase.height for phase in phases), default=0)  # slice and operators
    window = run.window(begin_s, end_s, int(ROOM_FOR_WORK * most_events / events_per_pass))
    instances = _instances_of_run(run.tables, window)
    # By role; those whose layers run in sequence have none.
    timeline_of = mean_load_timelines(run.scenario, run.facts, run.tables)
    metadata = {
        "scenario": run.scenario.name, "begin_s": begin_s, "end_s": end_s,
        "slices": "iterations and batches as the engine ran them; operators are seconds on the "
        "critical path, all layers together, laid out one after the other",
    }  # fmt: skip
    with _open_sink(to) as file:
        header = f'{{"displayTimeUnit":"ms","otherData":{_json_text(metadata)},"traceEvents":['
        file.write(header.encode())
        sink = _Events(file, most_events, left_out=window.left_out * events_per_pass)
        counter_room = int(ROOM_FOR_COUNTERS * most_events)
        for group in chain(
            _naming_events(instances, timeline_of),
            tracks.event_marks(run.tables, instances, begin_s, end_s),
            tracks.counter_events(run.tables, instances, begin_s, end_s, counter_room),
            *map(_slices_of_passes, instances),
            tracks.request_arrows(run.tables, instances, begin_s, end_s),
            tracks.request_bars(run.tables, begin_s, end_s),
        ):
            sink.write_group(group)
        for instance in instances:
            if instance.role in timeline_of:
                _write_streams(sink, instance, timeline_of[instance.role])
        file.write(b"\n]}\n")
    return Written(sink.events, sink.left_out, begin_s, end_s)


def check_span(begin_s: float | None, end_s: float | None) -> None:
    """Raise TraceError for a span before 0 s or one that does not end after its begin."""
    if begin_s is not None and not 0 <= begin_s < math.inf:
        raise TraceError(f"a trace cannot start at {begin_s:g} s: give it seconds from 0 on")
    if end_s is not None and not max(0.0, begin_s or 0.0) < end_s:
        raise TraceError(f"a trace cannot end at {end_s:g} s, for it starts at {begin_s or 0:g} s")


def span_of(run: watched.Source, begin_s: float | None, end_s: float | None) -> tuple[float, float]:
    """(begin, end) s of the span to write, cut to the run, with defaults in place of None; raises
    TraceError for a span that is not in the run."""
    check_span(begin_s, end_s)
    windows = run.tables["windows"]
    run_end_s = float(windows["t_s"][-1] + windows["window_s"][-1]) if windows.height else 0.0
    if begin_s is None:
        begin_s = min(run.scenario.warmup_s, max(0.0, run_end_s - SPAN_S))
        events = run.tables.get("events")
        if events is not None and (faults := events.filter(pl.col("kind") == Kind.FAULT)).height:
            begin_s = max(0.0, float(faults["t_s"].min()) - 0.5)  # type: ignore[arg-type]
        if end_s is not None:
            begin_s = min(begin_s, max(0.0, end_s - SPAN_S))
    if begin_s >= run_end_s:
        raise TraceError(f"a trace cannot start at {begin_s:g} s: the run lasts {run_end_s:g} s")
    end_s = begin_s + SPAN_S if end_s is None else end_s
    check_span(begin_s, end_s)
    return begin_s, min(end_s, run_end_s)


@contextmanager
def _open_sink(to: Path | Sink) -> Iterator[Sink]:
    """Yield the output stream of a path, compressed if the path ends in .gz, or a given stream."""
    if not isinstance(to, Path):
        yield to
        return
    with open_atomic(to) as raw, gzip_file(raw) if to.suffix == ".gz" else nullcontext(raw) as sink:
        yield sink


def gzip_file(file: IO[bytes]) -> gzip.GzipFile:
    """A gzip stream into a file; without time and name the same run gives the same bytes."""
    return gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)


@dataclass(slots=True)
class _Events:
    """Writer of events in groups, each written whole or not at all."""

    file: Sink
    room: int
    events: int = 0
    left_out: int = 0

    def write_group(self, group: list[Event]) -> None:
        """Write a group of events, or count it as left out if the file would have too many."""
        if len(group) > self.room:
            self.left_out += len(group)
            return
        for event in group:
            self.file.write((",\n" if self.events else "\n").encode() + _json_text(event).encode())
            self.events += 1
        self.room -= len(group)


def _json_text(value: object) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _write_streams(sink: _Events, instance: Instance, timeline: Timeline) -> None:
    """Write the layers of each pass of an instance on tracks of its streams until the file is full;
    timeline: of a pass at the mean load."""
    pass_events = 0
    for one_pass in instance.passes:
        if pass_events > sink.room:  # not even made
            sink.left_out += pass_events
            continue
        begin_ns, length_ns = ns(one_pass.begin_s), ns(one_pass.end_s) - ns(one_pass.begin_s)
        events = []
        for piece in timeline.placed_pieces():
            track = Track(instance.pid, FIRST_STREAM + piece.stream)
            edges_ns = [begin_ns + int(share * length_ns) for share in (piece.low, piece.high)]
            slice_name = f"layer {piece.layer} microbatch {piece.microbatch}"
            events.append(track.slice(slice_name, *edges_ns, of="formula at the mean load"))
            for operator, *end_shares in piece.operators:
                operator_ns = [begin_ns + int(share * length_ns) for share in end_shares]
                if operator_ns[1] > operator_ns[0]:
                    events.append(track.slice(operator, *operator_ns))
        pass_events = len(events)
        sink.write_group(events)


def _instances_of_run(tables: tracks.Tables, window: Window) -> list[Instance]:
    """Every instance of the run, prefill first, with its passes in the window."""
    role_order = {"prefill": 0, "decode": 1, "colocated": 2}
    instance_keys: list[tuple[str, int]] = (
        tables["ranks"].select("role", "instance").unique().rows()
    )
    instance_keys.sort(key=lambda key: (role_order.get(key[0], 9), key[1]))
    return [Instance(*key, tracks.FIRST_INSTANCE + number, window.passes.get(key, []))
            for number, key in enumerate(instance_keys)]  # fmt: skip


def _naming_events(
    instances: Iterable[Instance], streams: Mapping[str, Timeline]
) -> Iterator[list[Event]]:
    """Yield events that name processes and tracks; streams: timeline of a pass by role."""
    yield tracks.naming_events(tracks.RUN, "run", {0: "events"})
    yield tracks.naming_events(tracks.REQUESTS, "requests", {0: "arrivals"})
    for instance in instances:
        lanes = {ITERATIONS: "batches" if instance.role == "prefill" else "iterations"}
        if instance.role == "decode":
            lanes[KV_IN] = "KV in place"
        if instance.role in streams:
            titles = (f"{stream} stream" for stream in streams[instance.role].streams)
            lanes |= dict(enumerate(titles, FIRST_STREAM))
        yield tracks.naming_events(instance.pid, instance.name, lanes)


def _slices_of_passes(instance: Instance) -> Iterator[list[Event]]:
    """Yield slices of each pass of an instance (iteration or batch), with its operators inside."""
    track = Track(instance.pid, ITERATIONS)
    title = "prefill batch" if instance.role == "prefill" else f"{instance.role} iteration"
    for one_pass, begin_ns, end_ns in zip(
        instance.passes, *(times_ns.tolist() for times_ns in instance.edges_ns), strict=True
    ):
        if end_ns <= begin_ns:
            continue
        args = {"tokens": round(one_pass.tokens, 1)}
        args |= {"requests": one_pass.requests} if one_pass.requests else {}
        events = [track.slice(title, begin_ns, end_ns, **args)]
        # What no operator accounts for comes first: the batch reads its hits before it computes.
        operators_s = sum(operator_s for _, operator_s in one_pass.operators)
        begin_s = one_pass.begin_s + max(0.0, one_pass.end_s - one_pass.begin_s - operators_s)
        for operator, operator_s in one_pass.operators:
            from_ns, to_ns = max(ns(begin_s), begin_ns), min(ns(begin_s + operator_s), end_ns)
            begin_s += operator_s
            if to_ns > from_ns:
                events.append(track.slice(operator, from_ns, to_ns, layers="all, summed"))
        yield events


def trace_run(
    run: Annotated[str, typer.Argument(help="A preset, a scenario file or a run's id.")],
    begin_s: Annotated[float | None, typer.Option(
        "--from", metavar="S", help="Second of the run to begin at.")] = None,
    end_s: Annotated[float | None, typer.Option(
        "--to", metavar="S", help="Second of the run to end at.")] = None,
    request: Annotated[int | None, typer.Option(
        min=0, help="From a request's arrival to its end, by its number.")] = None,
    to: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", help="Write it here; .gz compresses it.")] = None,
    settings: Settings = None,
    most_events: Annotated[int, typer.Option(min=1000, help="At most so many events.")] = 200_000,
) -> None:  # fmt: skip
    """Write a span of a run as a trace that ui.perfetto.dev opens; print a request's stages."""
    check_span(begin_s, end_s)
    if to is not None:
        check_writable(to)

    with progress_bar(run) as watch:
        source = watched.source_of(run, settings or [], watch)
    if request is not None:
        begin_s, end_s = watched.span_of_request(source, request)
        err.print(escape(stages_text(source, request)))
    target = to if to is not None else bytes_out()
    err.print(escape(write_trace(source, target, begin_s, end_s, most_events).sentence))
    if to is not None:
        out.print(escape(f"{printable(str(to))} is written: open it in ui.perfetto.dev"))


def stages_text(run: watched.Source, request: int) -> str:
    """Sentence on the stages of the run's request with this number, and how long each lasted."""
    row = run.tables["requests"].row(by_predicate=pl.col("request_id") == request, named=True)
    stages = ", ".join(
        f"{stage} {seconds(stage_s)}" for stage, stage_s in watched.stage_times(row).items()
    )
    return f"Request {request}: {stages or 'still at the front end'}."
