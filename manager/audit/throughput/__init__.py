"""What paths and links carry: rounds of flows between disjoint pairs of NICs, each pinned to a path by its source port."""
