"""TCP connections of named services: which there are, and what they do."""
