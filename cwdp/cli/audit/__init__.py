"""`cwdp audit`: what hosts tell of themselves."""
