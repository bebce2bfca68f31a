"""Facts held against checks. Pure."""
