"""Which switches and links a path crosses, asked by probes of few hops."""
