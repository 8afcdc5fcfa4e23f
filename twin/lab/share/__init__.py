"""What leaves this twin and comes with it: links, and results that are shipped."""
