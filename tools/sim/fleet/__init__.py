"""Agents and their manager over simulated clocks, from a cold start."""
