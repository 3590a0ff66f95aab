"""One receiver, one file."""
