"""Metrics of a run, measured from its trace: the same values from Spark and without it."""
