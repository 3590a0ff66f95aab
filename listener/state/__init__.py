"""The state of each query: whose an observation is, what it changes, and the snapshot."""
