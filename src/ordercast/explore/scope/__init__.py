"""What is explored: configurations, publications to groups, and what may go wrong."""
