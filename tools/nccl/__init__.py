"""NCCL's profiler plug-in tried without NCCL: a program that plays its calls, and an agent that takes the ring."""

from tools.nccl.build import Built, build
from tools.nccl.player import FakeAgent, Player

__all__ = ["Built", "FakeAgent", "Player", "build"]
