"""The Workload page: its script and what only it uses."""
