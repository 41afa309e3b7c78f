"""The real machines of a configuration: what they can do, learnt once and remembered."""
