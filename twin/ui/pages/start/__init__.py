"""The Start page: its script and what only it uses."""
