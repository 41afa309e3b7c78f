"""(4) What happened: the run directory, its schema, and the recorder that fills it."""
