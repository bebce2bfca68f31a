"""What BPF programs cost a packet, by BPF_PROG_TEST_RUN."""
