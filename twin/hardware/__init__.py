"""What the machine is: its chips, the fabric as one graph, and what the fabric can carry."""
