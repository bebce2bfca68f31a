"""The InfiniBand lab: ibsim and opensm, which stay until `down`, and what is done to their links."""
