"""Keeps retired words out of code, docs, messages and tests."""
