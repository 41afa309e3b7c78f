"""What a run cost, measured from its trace: the same values from Spark and without it."""
