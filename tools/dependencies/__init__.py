"""The hashes of what the checkout's own environment is made of: ``requirements/``."""
