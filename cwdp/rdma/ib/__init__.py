"""Reaching ports of InfiniBand by their LIDs."""
