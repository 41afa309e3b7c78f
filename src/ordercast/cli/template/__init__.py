"""Templates that `ordercast new-protocol` copies: a protocol that works, and a scenario to try it in."""
