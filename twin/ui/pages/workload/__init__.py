"""What only the Workload page needs, beside its script."""
