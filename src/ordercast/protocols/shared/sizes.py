"""Header sizes as sources count them: in words, one for a node or a number; ids, topics and framing cost nothing."""

WORD = 4
"""Bytes of a word."""
