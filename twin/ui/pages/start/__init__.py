"""What only the Start page needs, beside its script."""
