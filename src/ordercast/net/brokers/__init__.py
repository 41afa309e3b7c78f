"""Broker processes: their log, admin port, cluster file, and a cluster of them on this machine."""
