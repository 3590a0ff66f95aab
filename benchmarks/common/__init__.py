"""What all benchmarks share: rows of the table, the machine, recorded events."""
