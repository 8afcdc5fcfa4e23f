"""How a stored question is carried out: by this process, or in the background."""
