"""Ordercast: every message chooses its delivery guarantee, and the trace proves that it held."""
