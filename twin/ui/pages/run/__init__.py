"""The Run page: its script and what only it uses."""
