"""Atomic multicast that survives crashes: every server becomes a group of replicas with one log."""
