"""What a job waits for when it imports querypulse and attaches it."""
