"""The Fleet page: its script and what only it uses."""
