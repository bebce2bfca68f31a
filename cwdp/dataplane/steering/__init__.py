"""Which path each queue pair takes, and what stands in for a dead one: written into the maps."""
