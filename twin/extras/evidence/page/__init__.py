"""The Evidence page: its script and what only it uses."""
