"""The fabric in the kernel: namespaces, links, addresses, routes, queues, dropped packets."""
