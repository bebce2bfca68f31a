"""The process that controls congestion."""
