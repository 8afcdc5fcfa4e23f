"""What only the Experts page needs, beside its script."""
