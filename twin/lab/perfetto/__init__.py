"""A run as a trace for ui.perfetto.dev: iterations, requests, faults and loads over time."""

from twin.lab.perfetto.streams import stream_plans
from twin.lab.perfetto.writer import (
    MOST_EVENTS,
    SPAN_S,
    TraceError,
    Written,
    check_span,
    span_of,
    span_of_request,
    write_trace,
)

__all__ = [
    "MOST_EVENTS",
    "SPAN_S",
    "TraceError",
    "Written",
    "check_span",
    "span_of",
    "span_of_request",
    "stream_plans",
    "write_trace",
]
