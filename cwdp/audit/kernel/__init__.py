"""What is told by no file: asked of the kernel, of NVML and of cwdp's own dataplane."""
