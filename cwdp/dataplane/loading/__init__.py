"""The programs of an interface: load, attach, swap, look after, tell of."""
