"""State of the topics half, with its own arithmetic: one topic, its log and members, clients, grants. No packets."""
