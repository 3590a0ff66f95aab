"""What one callback costs on Spark's own thread."""
