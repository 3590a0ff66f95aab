"""The fourth witness: the systems that queries read from, asked about what they have."""
