"""``querypulse watch``: a process outside the drivers that it watches."""
