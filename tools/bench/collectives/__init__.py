"""What the profiler plug-in for NCCL and RCCL costs, and who reads its ring."""
