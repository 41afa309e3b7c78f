"""One schedule performed step by step on real machines, read, written, and turned into a scenario."""
