"""Who sends to whom: patterns of flows over the hosts of a lab."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from cwdp.errors import ConfigError
from tools.lab.lab import Lab
from tools.roce.flows import Endpoint, Flow, drawn_flows, largest_mtu

NIC_WINDOW = 64

_MIN_WINDOW = 4

Pairs = list[tuple[int, int]]


def permutation(hosts: int, rng: random.Random) -> Pairs:
    """Each sends to one and receives from one other, drawn as one cycle through all (Sattolo's algorithm)."""
    targets = list(range(hosts))
    for last in range(hosts - 1, 0, -1):
        other = rng.randrange(last)
        targets[last], targets[other] = targets[other], targets[last]
    return list(enumerate(targets))


def ring(hosts: int, _: random.Random) -> Pairs:
    """Each sends to the next."""
    return [(host, (host + 1) % hosts) for host in range(hosts)]


def all_to_all(hosts: int, _: random.Random) -> Pairs:
    """Each sends to every other."""
    return [(source, target) for source in range(hosts) for target in range(hosts) if source != target]


def incast(hosts: int, _: random.Random) -> Pairs:
    """All send to the first."""
    return [(source, 0) for source in range(1, hosts)]


PATTERNS: dict[str, Callable[[int, random.Random], Pairs]] = {
    "permutation": permutation,
    "all-to-all": all_to_all,
    "ring": ring,
    "incast": incast,
}


def plan_flows(
    lab: Lab, pattern: str, *, qps: int = 1, ipv6: bool = False, seed: int = 1, **settings: Any
) -> list[Flow]:
    """Lay a pattern over the hosts of a lab, NIC to NIC of the same number.

    Args:
        lab: a lab that is up.
        pattern: one of `PATTERNS`.
        qps: queue pairs for each pair of NICs.
        ipv6: send IPv6 instead of IPv4.
        seed: draws the permutation, QPNs and first PSNs; source ports follow from QPNs as they do in Linux.
        settings: further fields of `Flow`, the same for all.

    Raises:
        ConfigError: the lab has too few hosts or too small an MTU, or a setting is wrong.
    """
    if len(lab.hosts) < 2:
        raise ConfigError("a lab with one host has nobody to send to", "Raise one with more --hosts.")
    rng = random.Random(seed)
    pairs = [pair for pair in PATTERNS[pattern](len(lab.hosts), rng) for _ in range(qps)]
    ends = [
        (_endpoint(lab, source, nic, ipv6), _endpoint(lab, target, nic, ipv6))
        for source, target in pairs
        for nic in range(lab.spec.nics_per_host)
    ]
    settings.setdefault("mtu", largest_mtu(lab.spec.mtu))
    settings.setdefault("window", shared_window(ends))
    return drawn_flows(ends, rng, **settings)


def shared_window(ends: Sequence[tuple[Endpoint, Endpoint]]) -> int:
    """The packets that a flow may have under way when all that meet at a NIC share `NIC_WINDOW` of them.

    It stands in for flow control of the links, which a lab has not: what all senders of an incast have under way
    fits the last switch's queue. A window of one's own choice overloads it.
    """
    counts = Counter(end for pair in ends for end in enumerate(pair))
    return max(_MIN_WINDOW, NIC_WINDOW // max(counts.values()))


def _endpoint(lab: Lab, host: int, nic: int, ipv6: bool) -> Endpoint:
    port = lab.hosts[host].nics[nic]
    return Endpoint(lab.hosts[host].name, port.ipv6 if ipv6 else port.ipv4)
