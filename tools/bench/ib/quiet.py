"""What is named in subnets in which nothing is wrong: many times ten minutes, in arithmetic."""

from collections.abc import Iterator

import numpy as np

from cwdp.shared.ib.names import Names
from manager.faults.finding import Findings
from manager.ib.faults.watch import SubnetFaults
from tools.ib.arrays import growth_of, rows_of, subnet_of
from tools.ib.topology import Clos
from tools.ib.traffic import Traffic

SECONDS = 600


def named(topology: Clos, seed: int, seconds: int = SECONDS) -> list[str]:
    """What was named, kind and subject, in so many polls of traffic that the seed draws."""
    return list(_begun(topology, seed, seconds))


def _begun(topology: Clos, seed: int, seconds: int) -> Iterator[str]:
    subnet, traffic = subnet_of(topology), Traffic(topology, np.random.default_rng([seed, topology.hosts]))
    rows = rows_of(subnet, traffic.ports)
    names, findings, known = Names(subnet), Findings(), set[int]()
    faults = SubnetFaults(findings, _note)
    for second in range(seconds):
        faults.hear(subnet, names, growth_of(subnet, rows, *traffic.second()), float(second))
        for one in findings.current.values():
            if one.number not in known:
                known.add(one.number)
                yield f"{one.kind} {one.subject.name}"


def _note(host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
    """Nobody reads events here."""
    del host, kind, detail, nic
