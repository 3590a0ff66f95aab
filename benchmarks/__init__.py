"""What querypulse costs, one file for each question."""
