"""How long things take: pure physics of operators, chips and links, no policy."""
