"""The Supernode page: its script and what only it uses."""
