"""Localisation on real packets: random single faults in a lab, one after the other, and what the manager finds.

A fault is silence or loss, on a host's link or on one between switches, both ways or one way. Found in time is what is
named within two seconds of the command that made it, and rightly so when the link is the one, or is among those that
the finding says cannot be told apart from it (in a lab of two leaves, the two links of a spine, until echoes off the
spine have told them apart).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from tools.bench.figures import Figure, figure
from tools.clocks import ClockKind
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import SETTLE_S, Traffic, lab_for_run, wait_for_lock
from tools.lab.topology import Link
from tools.lab.truth.clocks import Truth
from tools.waiting import wait_for

NAME = "faults"
FAULTS = 40
IN_TIME_S = 2.0
LOOK_S = 4.0
POLL_S = 0.05
WELL_S = 12.0
KNOWN_S = 15.0
ATTACHED_S = 6.0
"""What the kernel lost while the classifiers were being attached is out of mind."""

LEAST_LOSS = 0.005
SILENT_SHARE = 0.4
LOAD = 0.8
WATCH_S = 120.0
SPECS = (
    LabSpec(name=NAME, leaves=3, spines=3, hosts_per_leaf=2),
    LabSpec(name=NAME, leaves=2, spines=4, hosts_per_leaf=4),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What was done, and what was found.

    Attributes:
        directions: of the link, as `faults.drop` takes them.
        took_s: until the first finding; None for none.
        alone_s: until it named one link alone; None for never.
        named: its subject and those as likely, in the end.
        right: whether the link is among them.
        others: what else was found.
    """

    link: str
    directions: tuple[str, ...]
    loss: float
    took_s: float | None
    alone_s: float | None
    named: tuple[str, ...]
    right: bool
    others: tuple[str, ...]


def figures() -> Iterator[Figure]:
    """Faults in both labs, and a lab under load without one; with clocks that jump, too."""
    for spec in SPECS:
        yield from localised_figures(spec)
    for clocks in ("disciplined", "rough"):
        yield false_alarm_figure(clocks=clocks)


def localised_figures(spec: LabSpec, count: int = FAULTS, seed: int = 1) -> Iterator[Figure]:
    """Random faults of a lab."""
    rng = np.random.default_rng(seed)
    with _watched(spec) as (lab, client):
        links = list(lab.topology.links.values())
        for link in links:
            faults.drop(lab.name, link.name, 0.0)
        time.sleep(ATTACHED_S)
        _wait_until_well(client)
        done = []
        for number in range(count):
            fault = _try(lab, client, links[rng.integers(len(links))], rng)
            done.append(fault)
            progress(f"{number + 1} of {count}: {fault}")
    right = [fault for fault in done if fault.right]
    took_s = [fault.took_s for fault in right if fault.took_s is not None]
    in_time = sum(took <= IN_TIME_S for took in took_s)
    reference = {
        "faults": count,
        "leaves": spec.leaves,
        "spines": spec.spines,
        "right": len(right),
        "named_alone": sum(fault.alone_s is not None for fault in right),
        "named_alone_in_2s": sum(fault.alone_s is not None and fault.alone_s <= IN_TIME_S for fault in right),
        "with_other_findings": sum(bool(fault.others) for fault in done),
        "p50_s": round(float(np.quantile(took_s, 0.5)), 2) if took_s else None,
        "p99_s": round(float(np.quantile(took_s, 0.99)), 2) if took_s else None,
    }
    yield figure(
        f"faults_not_localised_in_2s_{spec.leaves}_leaves", 1 - in_time / count, "share", reference, 0.01
    )


def false_alarm_figure(seconds: float = WATCH_S, clocks: ClockKind = "disciplined") -> Figure:
    """Findings while nothing is wrong, with the fabric at 80 % load."""
    with (
        _watched(structs.replace(SPECS[1], clocks=clocks)) as (lab, client),
        Traffic(lab, LOAD, SETTLE_S + seconds) as traffic,
    ):
        time.sleep(SETTLE_S)
        before = _numbers(client)
        alarms: dict[int, str] = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alarms |= {
                each["number"]: f"{_words(each)}: {each['evidence']}"
                for each in _findings(client)
                if each["number"] not in before
            }
            time.sleep(10 * POLL_S)
        sent = traffic.result()
    reference = {
        "seconds": seconds,
        "measured_load": round(sent["measured_share"], 3) if sent else None,
        "alarms": list(alarms.values()),
    }
    return figure(f"faults_false_alarms_{clocks}", float(len(alarms)), "findings", reference, 0.0)


@contextmanager
def _watched(spec: LabSpec) -> Iterator[tuple[Lab, ManagerClient]]:
    """A lab whose clocks agree and whose fabric is known."""
    with lab_for_run(spec.name, spec) as lab, Fleet(lab) as fleet, Truth(lab) as truth:
        wait_for_lock(fleet, truth)
        client = ManagerClient(f"unix://{fleet.socket}")
        time.sleep(KNOWN_S)
        yield lab, client
        fleet.check()


def _try(lab: Lab, client: ManagerClient, link: Link, rng: np.random.Generator) -> Fault:
    """Break a link, see what is found, mend it and wait until that is over."""
    silent = rng.random() < SILENT_SHARE
    loss = 1.0 if silent else float(np.exp(rng.uniform(np.log(LEAST_LOSS), 0.0)))
    one_way = link.directions[rng.integers(2)]
    direction = faults.BOTH if rng.random() < 0.5 else one_way
    directions = link.directions if direction == faults.BOTH else (one_way,)
    before = _numbers(client)
    began_s = time.monotonic()
    faults.drop(lab.name, link.name, loss, direction)
    first, took_s, alone_s = None, None, None
    others: dict[int, str] = {}
    while time.monotonic() < began_s + LOOK_S:
        for finding in _findings(client):
            if finding["number"] in before:
                continue
            if first is None:
                took_s = time.monotonic() - began_s
            if first is None or finding["number"] == first["number"]:
                first = finding
            else:
                others[finding["number"]] = _words(finding)
        if first is not None and not first["also"] and alone_s is None:
            alone_s = time.monotonic() - began_s
        time.sleep(POLL_S)
    faults.drop(lab.name, link.name, 0.0)
    _wait_until_well(client)
    named = [] if first is None else [first["subject"], *first["also"]]
    wanted = {_nodes(lab, way) for way in directions}
    hits = [wanted <= {tuple(each) for each in subject["links"]} for subject in named]
    return Fault(
        link=link.name,
        directions=directions,
        loss=loss,
        took_s=took_s,
        alone_s=alone_s,
        named=tuple(subject["name"] for subject in named),
        right=any(hits),
        others=tuple(others.values()),
    )


def _wait_until_well(client: ManagerClient) -> None:
    wait_for(lambda: not _findings(client), WELL_S, poll_s=POLL_S)
    time.sleep(0.5)


def _nodes(lab: Lab, direction: str) -> tuple[str, str]:
    """A direction's ends as discovery names them."""
    a, _, b = direction.partition(">")
    return _node(lab, a, b), _node(lab, b, a)


def _node(lab: Lab, node: str, peer: str) -> str:
    if node in lab.topology.switches:
        return str(lab.topology.router_addresses(node)[0])
    nic = next(nic for nic in lab.host(node).nics if nic.leaf == peer)
    return f"{node}/{nic.name}"


def _findings(client: ManagerClient) -> list[Json]:
    found: list[Json] = client.get("/v1/link", {"limit": 1})["findings"]
    return found


def _numbers(client: ManagerClient) -> set[int]:
    return {finding["number"] for finding in _findings(client)}


def _words(finding: Json) -> str:
    return f"{finding['kind']} {finding['subject']['name']}"
