"""Protocol machines with fixed neighbours over TCP: numbered channels, and inputs that survive a restart."""
