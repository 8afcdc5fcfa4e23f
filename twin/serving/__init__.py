"""Serving: what to do next. Pure policy; knows no cost in seconds and no table of results."""
