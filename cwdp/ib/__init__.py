"""InfiniBand's management plane, read by a host that may send MADs: its fabric, its routes, its counters. Nothing is ever written."""
