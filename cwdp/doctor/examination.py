"""All checks, in the order in which they are told."""

from collections.abc import Callable, Iterable

from cwdp.doctor.checks import agent, clock, credentials, kernel, nccl, network, nics, rdma, uprobes, verbs
from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result

Check = Callable[[Facts], Iterable[Result]]

CHECKS: tuple[Check, ...] = (
    kernel.version,
    kernel.btf,
    kernel.jit,
    kernel.privileges,
    kernel.pressure,
    kernel.bpffs,
    kernel.memory,
    agent.configuration,
    credentials.credential,
    credentials.cluster_keys,
    nics.present,
    nics.xdp,
    nics.offloads,
    nics.dataplane,
    rdma.devices,
    verbs.shim,
    nccl.plugin,
    uprobes.tracing,
    clock.hardware,
    clock.discipline,
    network.probe_port,
    network.packet_filter,
    network.tracking,
    network.bus,
    agent.service,
)


def examine(facts: Facts) -> list[Result]:
    """What every check says."""
    return [result for check in CHECKS for result in check(facts)]
