"""querypulse replays: recorded events -> what would have been told, judged as if live."""
