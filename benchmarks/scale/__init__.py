"""From ten queries to ten thousand in one driver."""
