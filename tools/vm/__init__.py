"""Virtual machines over this machine's own file system, for what its kernel lacks."""
