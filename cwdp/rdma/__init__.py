"""RDMA devices of this host: what they are, their queue pairs, and probes by queue pair."""
