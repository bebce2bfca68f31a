"""The plug-in for NCCL: whether programs find it and reach the agent."""

from collections.abc import Iterator

from cwdp.doctor.checks import programs
from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result


def plugin(facts: Facts) -> Iterator[Result]:
    """Where the configuration has a section [nccl]: the library and the socket."""
    if facts.nccl is None or facts.config is None or facts.config.nccl is None:
        return
    yield programs.library("NCCL plug-in", facts.nccl, "nccl")
    yield programs.socket("NCCL socket", facts.nccl, facts.config.nccl.socket, "docs/nccl.md")
