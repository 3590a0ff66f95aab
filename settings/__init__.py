"""Settings: loading, checking, and making a sidecar's components from them."""
