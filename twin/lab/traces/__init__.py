"""Recorded request streams: every trace format in, one table out.

Reading order: reader.py (which format, and read it), source.py (bytes within limits), jsonl.py,
tabular.py, sessions.py, servegen.py (one file a family of formats), table.py (checked columns),
preview.py (figures for people), bound.py (what a cache could save at best), fit.py (length tables
for data/workloads).
"""

from twin.lab.traces.bound import lru_bound
from twin.lab.traces.preview import preview
from twin.lab.traces.reader import read_trace
from twin.lab.traces.source import LOCAL, UPLOAD, Limits, TraceError

__all__ = [
    "LOCAL",
    "UPLOAD",
    "Limits",
    "TraceError",
    "lru_bound",
    "preview",
    "read_trace",
]
