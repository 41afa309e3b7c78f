"""Multicast to groups on a tree: CBCAST, Causal Barriers and Delta-Neighbourhood, the baselines of LoCaMu."""
