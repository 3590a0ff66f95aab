"""Checks that every link into the project has a target."""
