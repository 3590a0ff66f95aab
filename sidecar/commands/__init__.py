"""The smaller commands of ``querypulse``; demo, replay and watch have rooms of their own."""
