"""Checks the layout of the product, and reports what could be simpler."""
