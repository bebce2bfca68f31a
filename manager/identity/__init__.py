"""The fleet's authority: who may do what on the bus, and the servers that hold to it."""
