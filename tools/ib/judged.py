"""A process at a node of a simulated subnet that polls and judges it, a poll for each line of standard input.

A line is JSON: how many seconds after the one before the poll is, by a simulated clock, and the lanes of ports that use fewer than
they could, by their names. ibsim cannot train a link to fewer lanes, and its ports claim that they could do more than they do, so both is altered in what
was read: a port could do what it does, but for those. The answer is a line of JSON: what was found.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.asking import Asker
from cwdp.ib.counters import Reading, Told, ask_counters, growth, reading
from cwdp.ib.snapshot import snapshot
from cwdp.ib.sweep import Fabric, sweep
from cwdp.ib.tables import read_tables
from cwdp.ib.umad import Umad
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import Subnet
from manager.faults.finding import Finding, Findings
from manager.ib.faults.watch import SubnetFaults
from tools.ib.topology import port_name

COST = "cost"
COST_PORTS, COST_TIMES = 10_000, 9


def main() -> None:
    """Poll until standard input ends."""
    with Umad() as port:
        asker = Asker(port)
        findings = Findings()
        faults = SubnetFaults(findings, _note)
        before: tuple[tuple[bytes, bytes], Reading] | None = None
        now_s = 0.0
        for line in sys.stdin:
            if line.strip() == COST:
                _tell(_cost(asker))
                continue
            after_s, lanes = json.loads(line)
            now_s += after_s
            fabric = sweep(asker)
            _alter(fabric, lanes)
            subnet = snapshot(fabric, read_tables(asker, fabric))
            now = _rows(subnet), _read(asker, subnet, now_s)
            grown = growth(before[1], now[1]) if before is not None and before[0] == now[0] else None
            before = now
            faults.hear(subnet, Names(subnet), grown, now_s)
            _tell([_json(each) for each in findings.current.values()])


def _note(host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
    """Nobody reads events here."""
    del host, kind, detail, nic


def _alter(fabric: Fabric, lanes: Mapping[str, int]) -> None:
    """Have ports do what they could, but for some."""
    for node in fabric.nodes.values():
        for number, port in node.ports.items():
            node.ports[number] = replace(
                port,
                width=lanes.get(port_name(node.name, number), port.width),
                widest=port.width,
                fastest_bps=port.lane_bps,
            )


def _rows(subnet: Subnet) -> tuple[bytes, bytes]:
    """What makes two subnets' rows the same."""
    guids = subnet.guids[subnet.ports["node"]]
    return guids.tobytes(), subnet.ports["number"].tobytes()


def _read(asker: Asker, subnet: Subnet, at_s: float) -> Reading:
    """Counters of all ports; those by which switches are managed have none."""
    own = {int(p["node"]): int(p["lid"]) for p in subnet.ports if p["lid"]}
    ends = [(own.get(int(p["node"]), int(p["lid"])), int(p["number"])) for p in subnet.ports]
    requests, places = ask_counters(
        (row, lid, number, False) for row, (lid, number) in enumerate(ends) if lid and number
    )
    return _told(asker, asker.prepare(requests), places, len(ends), at_s)


def _told(asker: Asker, made: Any, places: NDArray[np.intp], ports: int, at_s: float) -> Reading:
    answers, told = asker.ask_again(made), Told(ports)
    told.take(places, answers.data, answers.came)
    return reading(told, at_s, np.zeros(ports, bool))


def _cost(asker: Asker) -> dict[str, float]:
    """Processor time of reading the counters of as many ports as a large subnet has, those of this one over and over.

    The library of ibsim has a thread in this process that takes in answers, as of real devices the kernel does; it is told besides.
    """
    fabric = sweep(asker)
    subnet = snapshot(fabric, read_tables(asker, fabric))
    own = {int(p["node"]): int(p["lid"]) for p in subnet.ports if p["lid"]}
    ends = [(own[int(p["node"])], int(p["number"])) for p in subnet.ports if p["number"]]
    many = (ends * (COST_PORTS // len(ends) + 1))[:COST_PORTS]
    requests, places = ask_counters((row, *end, False) for row, end in enumerate(many))
    made = asker.prepare(requests)
    before = _told(asker, made, places, COST_PORTS, 0.0)
    took = []
    for _ in range(COST_TIMES):
        began = time.process_time(), time.thread_time(), time.monotonic()
        after = _told(asker, made, places, COST_PORTS, 1.0)
        growth(before, after)
        ended = time.process_time(), time.thread_time(), time.monotonic()
        took.append(np.subtract(ended, began))
    cpu_s, own_s, wall_s = np.median(took, axis=0).tolist()
    return {
        "cpu_s": cpu_s,
        "of_ibsims_library_s": cpu_s - own_s,
        "wall_s": wall_s,
        "known": float(after.known.mean()),
        "ports": float(len(ends)),
    }


def _json(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "subject": finding.subject.name,
        "evidence": finding.evidence,
    }


def _tell(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
