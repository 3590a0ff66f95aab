"""What becomes of a finding: pending, firing, recovering, ended; alone or with others. Pure."""
