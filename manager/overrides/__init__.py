"""What operators want of hosts: steering and slices."""
