"""A hundred queries in one driver: is every commit counted, and what does the probe take?"""
