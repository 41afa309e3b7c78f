"""Experiments as data: overlay, links, workload and faults of a run, as values that come from TOML."""
