"""Clients: who comes when, who is let in, who leaves and who tries again."""
