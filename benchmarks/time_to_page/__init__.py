"""How long it takes from a query's death, or its hanging, to an accepted page."""
