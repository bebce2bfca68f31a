"""The kernel tests on other kernels than this machine's."""
