"""Shared work over the topics of a filter: which topics there are, where the group began, and one inbox over them."""
