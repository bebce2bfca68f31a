"""The probes: what runs in the kernel, how it gets there, and what it writes down."""
