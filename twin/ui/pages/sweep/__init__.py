"""The Sweep page: its script and what only it uses."""
