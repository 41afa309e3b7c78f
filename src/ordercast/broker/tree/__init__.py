"""The tree half of a broker: who is my parent, who is the root, and may it decide."""
