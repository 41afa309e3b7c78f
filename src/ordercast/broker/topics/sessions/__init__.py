"""Sessions of clients at the whole tree: tickets that number them, absence, and folding of those that have ended."""
