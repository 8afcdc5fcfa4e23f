"""Contention: who crosses which link, and what each gets of it."""
