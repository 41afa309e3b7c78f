"""Promises that must hold in every state and at rest, checked from their definitions."""
