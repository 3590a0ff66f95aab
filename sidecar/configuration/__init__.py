"""What somebody has set, checked, and made into the parts of a sidecar."""
