"""Protocols whose neighbours change at run time, over TCP."""
