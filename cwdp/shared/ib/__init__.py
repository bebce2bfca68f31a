"""What a reader of an InfiniBand subnet tells the manager: the subnet, and its counters, as arrays. Pure."""
