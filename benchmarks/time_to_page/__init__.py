"""How long it takes from a query's death, or its hanging, until somebody is told."""
