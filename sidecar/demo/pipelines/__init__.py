"""The job that the demo watches, and what it runs on: files only, or Kafka and Delta Lake."""
