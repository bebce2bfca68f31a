"""Collectives over verbs in NCCL's order of calls, without GPUs: what the plug-in for NCCL and the verbs shim are held against."""

from tools.collective.build import PROGRAM, build
from tools.collective.ranks import Collective, Rank, Ranks, Truth, running

__all__ = ["PROGRAM", "Collective", "Rank", "Ranks", "Truth", "build", "running"]
