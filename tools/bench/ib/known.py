"""How soon a fleet knows a subnet of 1,024 hosts, and that a link of it was cut: through an agent, the bus and the manager's API.

The first link that is cut is the one by which the reader reaches most of the subnet: what is behind it is asked for in vain.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.errors import LabError
from tools.bench.figures import Figure, figure
from tools.ib.lab import faults, fleet, lifecycle
from tools.ib.lab.state import Spec
from tools.waiting import wait_for

LEAVES, SPINES, HOSTS = 32, 16, 32
CUTS, READER, NEAREST = 10, "h1", "l1-s1"
CALM_S, PAUSE_S, POLL_S = 90.0, 10.0, 0.02
WHOLE_S, CUT_S = 5.0, 2.0
"""What is to be reached."""


def figures() -> Iterator[Figure]:
    """The whole subnet, then links that are cut one after the other, each healed before the next."""
    spec = Spec(name=f"bench{os.getpid()}", leaves=LEAVES, spines=SPINES, hosts=HOSTS)
    lifecycle.up(spec)
    try:
        began_s = time.time()
        client = ManagerClient(f"unix://{fleet.start(spec.name, [READER])}")
        whole_s, came_s = time.time(), _agent_came_s(client)
        whole = _subnet(client) | {"with_start_of_processes_s": round(whole_s - began_s, 2)}
        yield figure("ib_fleet_knows_1024_hosts", whole_s - came_s, "s", whole, WHOLE_S, digits=2)
        took = [_cut(client, spec.name, link) for link in _links()]
    finally:
        lifecycle.down(spec.name)
    known_s = [known for known, _ in took]
    reference = {
        "median_s": round(median(known_s), 2),
        "nearest_link_s": round(known_s[0], 2),
        "named_median_s": round(median(named for _, named in took), 2),
        "cuts": len(took),
    }
    yield figure("ib_cut_known_at_1024_hosts", max(known_s), "s", reference, CUT_S, digits=2)


def _links() -> list[str]:
    draw = random.Random(1)
    return [NEAREST, *(f"l{draw.randint(2, LEAVES)}-s{draw.randint(1, SPINES)}" for _ in range(CUTS - 1))]


def _agent_came_s(client: ManagerClient) -> float:
    """When the manager heard the agent first, since 1970."""
    (came,) = client.get("/v1/events", {"kind": "host_up"})["events"]
    return float(came["time_s"])


def _cut(client: ManagerClient, lab: str, link: str) -> tuple[float, float]:
    """Seconds until the model lacks a link that is cut, and until that is named."""
    before = _cables(client)
    began_s = time.monotonic()
    faults.cut(lab, link, None)
    _wait(lambda: _cables(client) < before, f"that {link} is cut was not known")
    known_s = time.monotonic() - began_s
    _wait(lambda: _findings(client), f"that {link} is cut was not named")
    named_s = time.monotonic() - began_s
    progress(f"{link}: known after {known_s:.2f} s, named after {named_s:.2f} s")
    faults.heal(lab, link, None)
    _wait(lambda: _cables(client) == before and not _findings(client), f"that {link} is whole was not known")
    time.sleep(PAUSE_S)
    return known_s, named_s


def _wait(is_so: Callable[[], object], otherwise: str) -> None:
    if not wait_for(is_so, CALM_S, poll_s=POLL_S):
        raise LabError(otherwise, "is the machine too busy?")


def _subnet(client: ManagerClient) -> dict[str, Any]:
    (found,) = client.get("/v1/fabric")["infiniband"]
    return {key: found[key] for key in ("switch_count", "nic_count", "cable_count")}


def _cables(client: ManagerClient) -> int:
    return int(_subnet(client)["cable_count"])


def _findings(client: ManagerClient) -> list[Any]:
    found: list[Any] = client.get("/v1/link", {"limit": 1})["findings"]
    return found
