"""What a manager of many NICs needs, and the leaders of several pods: real ones on a real bus, with a swarm for hosts."""
