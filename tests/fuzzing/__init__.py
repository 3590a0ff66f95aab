"""Coverage-guided fuzzing: ``make fuzz``. What it has found is replayed by ``test_fuzzing.py``."""
