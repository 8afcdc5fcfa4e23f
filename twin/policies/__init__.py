"""Policies: what to do next. Pure choices; they know no cost in seconds and no table of results."""
