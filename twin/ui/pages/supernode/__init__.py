"""What only the Supernode page needs, beside its script."""
