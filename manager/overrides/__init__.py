"""What operators want of hosts: steering of queue pairs and of TCP connections, and slices."""
