"""TCP connections of named services as the agents tell of them."""
