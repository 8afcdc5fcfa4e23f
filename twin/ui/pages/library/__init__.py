"""What only the Library page needs, beside its script."""
