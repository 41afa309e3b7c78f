"""The wire between two processes: frames, the handshake, one connection, credentials, limits."""
