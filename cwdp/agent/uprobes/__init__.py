"""What programs of named cgroups call in libibverbs and in NCCL: uprobes by bcc, in a process of their own."""
