"""What scenarios need in the virtual machine: hosts, counters, verbs programs, agents."""
