"""Bandwidth slices on the interfaces of this host: from what is wanted to qdiscs and the dataplane's maps."""
