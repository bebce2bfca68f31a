"""Random faults of an InfiniBand lab, and what its fleet names."""
