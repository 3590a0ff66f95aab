"""The demo on a Kafka broker and Delta Lake, as the incident happened."""
