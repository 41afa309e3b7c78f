"""Traces of other tools, read as ours: each module knows one form and names what it does not understand."""
