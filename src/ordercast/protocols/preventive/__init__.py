"""Preventive causal broadcast: constant headers and constant delivery work while processes and links come and go."""
