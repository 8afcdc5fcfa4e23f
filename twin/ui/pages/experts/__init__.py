"""The Experts page: its script and what only it uses."""
