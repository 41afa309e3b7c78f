"""Atomic multicast to named destinations: the shared part, Skeen, Delporte-Fauconnier, real-time order."""
