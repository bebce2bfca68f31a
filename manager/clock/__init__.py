"""From edge fits to one timeline, and a line for each host to follow."""
