"""How the database came to its present shape; run by `migrate`, never imported."""
