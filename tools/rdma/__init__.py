"""Real RDMA in a virtual machine: Soft-RoCE hosts on the lab's fabric, and verbs programs across it."""
