"""The InfiniBand subnet that this host reads for the manager, in a process of its own."""
