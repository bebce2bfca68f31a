"""Labs, simulations, benchmarks and generators around cwdp; nothing of it runs in production."""
