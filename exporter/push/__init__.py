"""What is pushed where nobody can scrape: payloads, without sockets."""
