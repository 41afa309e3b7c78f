"""Runtime B: real processes and TCP, under the same machines as virtual time. The only package that awaits."""
