"""One edge: what its probes tell of one clock against another. Agents run it."""
