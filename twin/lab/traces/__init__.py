"""Recorded request streams: every trace format in, one table out.

Reading order: reader.py (which format, and read it), formats.py (what a format is), source.py
(bytes within limits), cells.py (checked values, which jsonl.py and tabular.py read), requests.py,
sessions.py, servegen.py (a family of formats each), table.py (checked columns), preview.py (figures
for people), bound.py (what a prefix cache could save at best).
"""

from twin.lab.traces.bound import lru_bound
from twin.lab.traces.preview import preview
from twin.lab.traces.reader import FORMATS, known, read_trace
from twin.lab.traces.source import LOCAL, UPLOAD, Limits, TraceError

__all__ = [
    "FORMATS",
    "LOCAL",
    "UPLOAD",
    "Limits",
    "TraceError",
    "known",
    "lru_bound",
    "preview",
    "read_trace",
]
