"""Who a process is on the bus: its key, its signed credential, and the certificate by which servers are known."""
