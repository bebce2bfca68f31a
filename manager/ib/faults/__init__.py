"""Faults and congestion of InfiniBand subnets, from the states and counters of ports. No I/O."""
