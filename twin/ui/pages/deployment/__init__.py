"""What only the Deployment page needs, beside its script."""
