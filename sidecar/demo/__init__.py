"""The incident, staged: eight streaming queries in one driver, and something befalls the eighth."""
