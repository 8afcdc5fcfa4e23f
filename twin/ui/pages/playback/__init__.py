"""The Playback page: its script and what only it uses."""
