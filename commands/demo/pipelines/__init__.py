"""The job that the demo monitors, on files only, or on Kafka and Delta Lake."""
