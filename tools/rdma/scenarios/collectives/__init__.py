"""Collectives over real verbs, with the verbs shim and the plug-in for NCCL."""
