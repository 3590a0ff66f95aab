"""What a job waits for once: import and attach."""
