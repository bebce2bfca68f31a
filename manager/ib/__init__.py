"""What the manager knows of InfiniBand subnets."""
