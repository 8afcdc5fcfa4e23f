"""Extras: what is about the twin and not the twin, a package each, found by `twin/hooks.py`."""
