"""InfiniBand subnets as readers tell them: what there is, where packets go, what each link carries. No I/O."""
