"""The main job as processes on this machine: a tree of brokers, bank replicas on it, brokers killed while they work."""
