"""Delivers to each receiver the difference between open incidents and what it was sent."""
