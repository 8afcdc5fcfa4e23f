"""The Deployment page: its script and what only it uses."""
