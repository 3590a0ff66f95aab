"""Delivery: what each receiver should know, what it knows, and the threads that send it."""
