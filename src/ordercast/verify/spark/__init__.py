"""Did it hold, at scale: the Spark session, and the metrics and judgements that run on it."""
