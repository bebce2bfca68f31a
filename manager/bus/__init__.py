"""What the manager keeps on the bus: the lease, what every leader must know, and the server itself."""
