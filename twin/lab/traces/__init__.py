"""Recorded request streams: every trace format in, one table out; `reader` is where to begin."""
