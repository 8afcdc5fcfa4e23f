"""A run as a trace for ui.perfetto.dev: iterations, requests, faults and loads over time."""
