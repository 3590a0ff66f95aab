"""Reads Spark through Spark Connect: the session is the job's, the connection is our own."""
