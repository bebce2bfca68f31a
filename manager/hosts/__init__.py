"""Which hosts and NICs are there, and what they count."""
