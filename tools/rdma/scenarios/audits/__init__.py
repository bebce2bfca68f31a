"""What an audit has hosts do with real RDMA."""
