"""Who probes whom, at which rate and from which ports: the documents for agents."""
