"""Audits of the hosts that are there: who is asked, what has come, what is kept of it."""
