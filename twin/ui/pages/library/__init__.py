"""The Library page: its script and what only it uses."""
