"""Clocks and what their probes meet: the fits of two nodes and of a Clos, the graph solve."""
