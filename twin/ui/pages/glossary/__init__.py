"""The terms of the twin."""
