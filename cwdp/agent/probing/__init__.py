"""Sends the probes of a NIC and reads what became of them."""
