"""The fourth signal: polls the systems that queries read from."""
