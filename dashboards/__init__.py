"""querypulse explains: runbooks, one for each alert. Data; imports nothing."""
