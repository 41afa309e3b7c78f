"""The scope of an exploration: configurations, publications to groups, and what may go wrong."""
