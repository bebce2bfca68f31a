"""Jobs in arithmetic, and how well the manager infers them."""
