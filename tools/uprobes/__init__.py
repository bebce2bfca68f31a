"""Uprobes tried without RDMA and without NCCL: libraries that look like theirs, and a program that calls them."""

from tools.uprobes.caller import Caller, build
from tools.uprobes.cgroup import cgroup, unified
from tools.uprobes.tracing import HEADERS, TracingProcess

__all__ = ["HEADERS", "Caller", "TracingProcess", "build", "cgroup", "unified"]
