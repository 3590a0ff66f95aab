"""What all parts share: guard, threads, deadlines, secrets and redaction."""
