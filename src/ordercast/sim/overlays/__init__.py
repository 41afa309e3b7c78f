"""Protocols whose neighbours change, under virtual time: processes with connections and an application on each."""
