"""InfiniBand subnets that are simulated: ibsim is their switches and hosts, opensm their subnet manager."""
