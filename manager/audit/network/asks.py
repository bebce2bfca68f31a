"""Which NICs ask which others, and over how many ports, so that all pairs are met, and each path between leaves. Pure.

As in the probe graph a NIC asks those of other hosts that probe by the same transport, over an address family that both have.
Ports that are drawn at random lead over paths at random, so it takes some more of them than there are paths until each has
been met: the coupon collector's problem (Feller, An Introduction to Probability Theory, vol. 1, IV.2), here by the union bound.
Where all that is more than a host may send, pairs have fewer ports, as pairs of the same two leaves share their paths, and
make up for each other; with `LEAST_PORTS` only there are fewer pairs, so drawn that each NIC is asked by as many hosts.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.audit.asks import MOST_ADDRESSES, MOST_NICS, MOST_PORTS, MOST_PROBES, Ask
from cwdp.shared.bus.messages import Nic, nic_id
from manager.fabric.choice import CONFIDENCE
from manager.probing.schedule import Family, Member

LEAST_PORTS = 4
"""Of a pair: silence of one or two of them tells little of where it is."""

MOST_BYTES = 16 << 20
"""Of the addresses in all orders: these are repeated every few seconds, and the bus carries other things too."""

USUAL_PORTS = 16
"""Where it is not known how many paths there are."""


class Target(NamedTuple):
    """A NIC, and an address of it."""

    nic: str
    addr: str


@dataclass(frozen=True)
class Plan:
    """Who asks whom.

    Attributes:
        orders: of each host that asks.
        targets: all that are asked, in the order from which each host takes some that follow each other.
        chosen: of each host, the places in `targets` of those that it asks, shape (targets of the host,).
        families: address families of each NIC that asks: a bit set, 1 for IPv4, 2 for IPv6.
        leaf: of each NIC of which it is known.
        ports: of each pair.
        ways: different paths between two leaves at most, 0 where none is known.
        share: of all pairs, 0 to 1.
        left_out: NICs that probe by UD queue pairs, which cannot ask.
    """

    orders: Mapping[str, Ask] = field(default_factory=dict)
    targets: Sequence[Target] = ()
    chosen: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    families: Mapping[str, int] = field(default_factory=dict)
    leaf: Mapping[str, str] = field(default_factory=dict)
    ports: int = LEAST_PORTS
    ways: int = 0
    share: float = 1.0
    left_out: int = 0


def plan(
    members: Sequence[Member],
    hosts: Collection[str],
    *,
    family: Family,
    ways: int,
    leaf: Mapping[str, str],
    seed: int,
) -> Plan:
    """Who asks whom.

    Args:
        members: (host, NIC) of all that are probed.
        hosts: those that ask.
        family: which addresses are asked of NICs that have two; each is where some NIC has not that family.
        ways: different paths between two leaves at most, 0 where none is known.
        leaf: of each NIC of which it is known.
        seed: the order of targets is drawn by it.
    """
    able = [member for member in members if member[1].transport == "xdp"]
    asking: defaultdict[str, list[Nic]] = defaultdict(list)
    for host, nic in able:
        if host in hosts and len(asking[host]) < MOST_NICS:
            asking[host].append(nic)
    targets = _in_circle(_targets(able, family), leaf, np.random.default_rng(seed))
    packed = [ip_address(target.addr).packed for target in targets]
    most_nics = max(map(len, asking.values()), default=1)
    size = max((len(each) for each in packed), default=1)
    count = min(len(targets), MOST_ADDRESSES, MOST_BYTES // (size * max(len(asking), 1)))
    ports = min(ports_for(ways), max(MOST_PROBES // max(most_nics * count, 1), LEAST_PORTS))
    count = min(count, MOST_PROBES // (most_nics * ports))
    chosen = _chosen(targets, sorted(asking), count)
    return Plan(
        orders={
            host: _order(asking[host], [packed[i] for i in mine], ports) for host, mine in chosen.items()
        },
        targets=targets,
        chosen=chosen,
        families={nic_id(host, nic.ifname): _families(nic) for host, nics in asking.items() for nic in nics},
        leaf=leaf,
        ports=ports,
        ways=ways,
        share=_share(targets, asking, chosen),
        left_out=len(members) - len(able),
    )


def ports_for(ways: int) -> int:
    """So many ports drawn at random lead over each of some paths, with the probability `CONFIDENCE`, if all are as likely."""
    if ways == 0:
        return USUAL_PORTS
    if ways == 1:
        return LEAST_PORTS
    wanted = math.ceil(math.log((1 - CONFIDENCE) / ways) / math.log1p(-1 / ways))
    return min(max(wanted, LEAST_PORTS), MOST_PORTS)


def met(ports: float, ways: int) -> float:
    """The probability that so many ports lead over each of some paths, 0 to 1; at least that."""
    return max(0.0, 1.0 - ways * (1 - 1 / ways) ** ports) if ways > 1 else float(ports >= ways)


def _families(nic: Nic) -> int:
    return (nic.ipv4 is not None) | (nic.ipv6 is not None) << 1


def _targets(members: Sequence[Member], family: Family) -> list[Target]:
    needs_both = family == "both" or any(_of(nic, family) is None for _, nic in members)
    return [
        Target(nic_id(host, nic.ifname), each)
        for host, nic in members
        for each in ((nic.ipv4, nic.ipv6) if needs_both else (_of(nic, family),))
        if each is not None
    ]


def _of(nic: Nic, family: Family) -> str | None:
    return nic.ipv6 if family == "6" else nic.ipv4


def _in_circle(targets: Sequence[Target], leaf: Mapping[str, str], rng: np.random.Generator) -> list[Target]:
    """In such an order that those of each leaf are spread evenly, and drawn at random among themselves."""
    by_leaf: defaultdict[str, list[int]] = defaultdict(list)
    for place in rng.permutation(len(targets)).tolist():
        by_leaf[leaf.get(targets[place].nic, "")].append(place)
    where = np.zeros(len(targets))
    for name in sorted(by_leaf):
        mine = by_leaf[name]
        where[mine] = (np.arange(len(mine)) + rng.random()) / len(mine)
    return [targets[place] for place in np.argsort(where, kind="stable").tolist()]


def _chosen(targets: Sequence[Target], hosts: Sequence[str], count: int) -> dict[str, NDArray[np.int32]]:
    """Of each host so many that follow each other, none of its own, from as many places as there are hosts."""
    own: defaultdict[str, list[int]] = defaultdict(list)
    for place, target in enumerate(targets):
        own[target.nic.partition("/")[0]].append(place)
    chosen = {}
    for number, host in enumerate(hosts):
        most = min(count + len(own[host]), len(targets))
        window = (np.arange(most) + number * len(targets) // len(hosts)) % len(targets)
        chosen[host] = window[~np.isin(window, own[host])][:count].astype(np.int32)
    return {host: mine for host, mine in chosen.items() if len(mine)}


def _order(nics: Sequence[Nic], packed: Sequence[bytes], ports: int) -> Ask:
    return Ask(
        nics=[nic.ifname for nic in nics],
        ipv4=b"".join(each for each in packed if len(each) == 4),
        ipv6=b"".join(each for each in packed if len(each) == 16),
        ports=ports,
    )


def _share(
    targets: Sequence[Target], asking: Mapping[str, Sequence[Nic]], chosen: Mapping[str, NDArray[np.int32]]
) -> float:
    others = dict.fromkeys(asking, len(targets))
    for target in targets:
        host = target.nic.partition("/")[0]
        if host in others:
            others[host] -= 1
    asked = sum(len(asking[host]) * len(mine) for host, mine in chosen.items())
    return asked / max(sum(len(asking[host]) * count for host, count in others.items()), 1)
