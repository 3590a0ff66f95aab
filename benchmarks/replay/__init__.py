"""How fast event logs are replayed, here and on Spark."""
