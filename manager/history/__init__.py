"""What happened and how the fabric was: kept on disk, shared over the bus, asked for by time."""
