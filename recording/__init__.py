"""The black box: what happened in each incident, in one file, after the driver is gone."""
