"""What NCCL's and RCCL's programs on this host do, as their profiler plug-in tells: by a process of its own."""
