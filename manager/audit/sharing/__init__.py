"""Audits on the bus, so that all managers of a pod have the same, and so has who leads next."""
