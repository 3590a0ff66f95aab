"""Reads Spark through the driver's JVM."""
