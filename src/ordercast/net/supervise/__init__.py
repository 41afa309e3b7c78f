"""A scenario on real processes: who starts them, loads them, kills them and collects what they recorded."""
