"""What only the Run page needs, beside its script."""
