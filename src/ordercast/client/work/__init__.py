"""Shared work: one leader of a group hands the messages of a kept topic to its members, key by key in order."""
