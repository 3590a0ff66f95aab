"""A demo of the incident: eight streaming queries in one driver, of which one goes wrong."""
