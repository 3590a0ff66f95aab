"""Generators of rules, dashboards and documents, and checks of the checkout."""
