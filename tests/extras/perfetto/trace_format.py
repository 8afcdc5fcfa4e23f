"""The trace-event format as rules: what a viewer relies on, checked event by event.

Format: "Trace Event Format" (Google, the document that ui.perfetto.dev's importer follows). Times
are microseconds; compared as whole nanoseconds, the importer's own resolution.
"""

import json
import math
from collections import defaultdict
from typing import Any

REQUIRED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "b": {"name", "ts", "pid", "id", "cat"},
    "e": {"name", "ts", "pid", "id", "cat"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
    "s": {"name", "ts", "pid", "tid", "id", "cat"},
    "t": {"name", "ts", "pid", "tid", "id", "cat"},
    "f": {"name", "ts", "pid", "tid", "id", "cat"},
}
META = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}


def parsed(content: bytes) -> list[dict[str, Any]]:
    """The events of a trace, as strict JSON."""

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    whole = json.loads(content, parse_constant=refuse)
    assert set(whole) >= {"traceEvents", "displayTimeUnit"}
    assert whole["displayTimeUnit"] in ("ms", "ns")
    return whole["traceEvents"]


def check(events: list[dict[str, Any]]) -> None:
    """Raise AssertionError with the first event that breaks a rule."""
    for event in events:
        missing = REQUIRED[event["ph"]] - set(event)
        assert not missing, (missing, event)
        assert isinstance(event["pid"], int) and event["pid"] > 0, event
        assert math.isfinite(event.get("ts", 0)) and event.get("ts", 0) >= 0, event
        if event["ph"] == "C":
            assert event["args"], event
            assert all(math.isfinite(v) for v in event["args"].values()), event
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t"), event
        if event["ph"] == "M":
            assert event["name"] in META, event
    slices = check_nesting(events)
    check_pairs(events)
    check_flows(events, slices)
    check_names(events)


def ns(us: float) -> int:
    return round(us * 1000)


def check_nesting(events) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Slices of a track nest: a child lies in its parent, neighbours do not overlap."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = ns(event["ts"])
            assert event["dur"] > 0, event
            tracks[event["pid"], event["tid"]].append((begin, begin + ns(event["dur"]), event))
    for rows in tracks.values():
        open_: list[int] = []
        # Stable: of equal begins the longer one was written first, as importers need it.
        for begin, end, event in sorted(rows, key=lambda r: r[0]):
            while open_ and open_[-1] <= begin:
                open_.pop()
            assert not open_ or end <= open_[-1], event
            open_.append(end)
    return {key: [(a, b) for a, b, _ in rows] for key, rows in tracks.items()}


def check_pairs(events) -> None:
    """Every async begin has its end, later and under the same name, process and id."""
    pairs = defaultdict(list)
    for event in events:
        if event["ph"] in "be":
            key = event["pid"], event["cat"], event["id"], event["name"]
            pairs[key].append((event["ph"], ns(event["ts"])))
    for key, found in pairs.items():
        assert [p for p, _ in found] == ["b", "e"], key
        assert found[0][1] <= found[1][1], key


def check_flows(events, slices) -> None:
    """A flow starts once, steps in order of time, ends once; each point lies in a slice."""
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["cat"], event["name"], event["id"]].append(event)
            at = ns(event["ts"])
            rows = slices.get((event["pid"], event["tid"]), [])
            assert any(a <= at < b for a, b in rows), ("no slice around", event)
    for key, found in flows.items():
        assert "".join(e["ph"] for e in found) == "s" + "t" * (len(found) - 2) + "f", key
        times = [ns(e["ts"]) for e in found]
        assert times == sorted(times), key


def check_names(events) -> None:
    """Every track that holds something has a name, and thread ids are unique in the trace."""
    named = {(e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xstf"}
    assert used <= named
    assert len({tid for _, tid in named}) == len(named)
    assert {e["pid"] for e in events} <= {e["pid"] for e in events if e["name"] == "process_name"}
