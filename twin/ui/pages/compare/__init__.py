"""What only the Compare page needs, beside its script."""
