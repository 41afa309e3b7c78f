"""Small causal clusters completely: every interleaving of the order, and of the tickets behind it."""
