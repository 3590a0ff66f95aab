"""What one progress event costs on Spark's own threads."""
