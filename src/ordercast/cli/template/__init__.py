"""What `ordercast new-protocol` writes: a protocol that works, and a scenario to try it in."""
