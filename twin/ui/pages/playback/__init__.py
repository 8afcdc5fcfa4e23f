"""What only the Playback page needs, beside its script."""
