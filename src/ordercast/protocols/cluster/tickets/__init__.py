"""Entries of the vector as leased tickets: managers on a ring give them out, quorums make the owner the only one."""
