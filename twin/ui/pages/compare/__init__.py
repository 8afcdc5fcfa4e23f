"""The Compare page: its script and what only it uses."""
