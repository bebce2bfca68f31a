"""What is asked of the kernel: system calls by libbpf, netlink, ethtool, barriers."""
