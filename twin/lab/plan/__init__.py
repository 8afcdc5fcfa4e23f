"""Plan: which deployment serves a load best, found by formula and proved by simulation."""
