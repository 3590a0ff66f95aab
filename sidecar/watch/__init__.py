"""``querypulse watch``: the fourth witness, a process outside the drivers that it watches."""
