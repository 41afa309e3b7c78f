"""Replicated services: state that applications keep at several nodes, built on ordered messages."""
