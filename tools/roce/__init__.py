"""The RoCEv2 traffic generator: queue pairs in user space that look and behave like a NIC's on the wire.

The packets are made and judged by a C program (`build/roce/cwdp-roce`), one process a host. This package plans what
the processes do, runs them and puts their results together:

    flows = plan_flows(lab, "ring", message_bytes=65536)             # or Flow(...) by hand
    with Generator(flows, spawn=lab.popen, run_dir=lab.run_dir) as generator:
        generator.start(seconds=5)
        result = generator.result()                                  # what `cwdp lab traffic --json` prints

`plan_collective` plans ranks whose steps begin when their inputs have arrived, for `Generator(plan.flows, ..., ranks=plan.ranks)`.
docs/generator.md describes the packets and every field of the result.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.roce.collective.plan import Communicator, plan_collective
    from tools.roce.collective.results import collective_result
    from tools.roce.flows import Endpoint, Flow
    from tools.roce.generator import Generator
    from tools.roce.patterns import PATTERNS, plan_flows

__all__ = [
    "PATTERNS",
    "Communicator",
    "Endpoint",
    "Flow",
    "Generator",
    "collective_result",
    "plan_collective",
    "plan_flows",
]

_WHERE = {
    "Communicator": "tools.roce.collective.plan",
    "plan_collective": "tools.roce.collective.plan",
    "collective_result": "tools.roce.collective.results",
    "Endpoint": "tools.roce.flows",
    "Flow": "tools.roce.flows",
    "Generator": "tools.roce.generator",
    "PATTERNS": "tools.roce.patterns",
    "plan_flows": "tools.roce.patterns",
}


def __getattr__(name: str) -> Any:
    """What is named here, imported when it is needed: some programs need little of it, and are to start soon."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
