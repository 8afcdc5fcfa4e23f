"""JSON over the same lab, store, limits and login as the pages, served under `/api`."""
