"""Traffic between NICs over chosen paths, for an audit: who may send it, and the programs that do."""
