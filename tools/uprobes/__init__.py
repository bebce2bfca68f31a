"""Uprobes tried without RDMA and without NCCL: libraries that look like theirs, and a program that calls them."""

from tools.uprobes.caller import Caller, build

__all__ = ["Caller", "build"]
