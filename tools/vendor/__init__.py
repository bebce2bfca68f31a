"""The libraries of the operators' page, copied from npm by a lock file with sums."""
