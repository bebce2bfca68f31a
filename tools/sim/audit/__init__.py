"""Fleets that exist in facts only, and what may be wrong with a host of them."""
