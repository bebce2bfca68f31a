"""The host's clock: its time base, the fits of its edges, and the line that it follows."""
