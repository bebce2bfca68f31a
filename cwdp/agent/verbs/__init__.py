"""Queue pairs that the hardware sends: programs that have loaded the verbs shim, their paths, and moving them."""
