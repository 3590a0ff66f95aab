"""The smaller commands of ``querypulse``; demo, replay and watch have packages of their own."""
