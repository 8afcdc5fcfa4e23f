"""What only the Plan page needs, next to its script."""
