"""What ``start()`` waits for when a query has listeners."""
