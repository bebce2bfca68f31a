"""The kernel side of one interface: loading, pinning, attaching, and typed access to its maps."""
