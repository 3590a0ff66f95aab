"""What is kept of a thousand queries, and whether it grows."""
