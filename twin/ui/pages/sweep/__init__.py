"""What only the Sweep page needs, beside its script."""
