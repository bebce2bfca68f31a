"""Reads the facts of this host; nothing is changed, attached or sent but a connection to the bus."""
