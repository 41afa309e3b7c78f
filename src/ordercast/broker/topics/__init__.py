"""The topics half of a broker: what travels on the tree, in what order, to whom, and when it may be forgotten."""
