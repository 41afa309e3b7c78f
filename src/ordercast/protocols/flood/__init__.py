"""Broadcast on any graph: flooding, and the orders that are built on it."""
