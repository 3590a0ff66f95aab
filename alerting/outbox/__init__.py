"""What each receiver should know and what it was told: the difference is delivered, and kept."""
