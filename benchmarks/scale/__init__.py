"""Ten queries to ten thousand in one driver, one core."""
