"""What ``start()`` waits for when somebody listens."""
