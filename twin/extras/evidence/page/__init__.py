"""What only the Evidence page needs, beside its script."""
