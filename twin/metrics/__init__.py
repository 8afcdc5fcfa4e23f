"""Metrics: tables in, numbers out. Knows nothing about how time passed."""
