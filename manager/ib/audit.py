"""What is amiss in an InfiniBand subnet that works: slow links, one LID a port, names twice, uneven routes. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, SWITCH, Subnet
from cwdp.shared.rates import format_rate
from manager.ib.evenness import Balance, balance

ACTIVE = 4
"""Of a port's state (IBTA volume 1, 14.2.5.6)."""

MOST_UNEVEN = 1.25
"""A link with more than so many times its even share is told of."""

MOST_NAMED = 3
NAMES, BALANCE = "ib-names", "ib-balance"
DESCRIPTION_BYTES = 64
"""Of NodeDescription (IBTA volume 1, 14.2.5.2)."""


class Finding(NamedTuple):
    """Something that is not as it should be: by which check, what it is about, and what was found.

    `about` are ports (`SWITCH:PORT`, or the NIC that it is), links (`A - B`, one way of them `A > B`), or switches, the worst
    first; none where it is the subnet as a whole.
    """

    check: str
    verdict: Literal["warn", "fail"]
    about: tuple[str, ...]
    found: str


def findings_of(subnet: Subnet, names: Names) -> list[Finding]:
    """All findings, by check."""
    return [finding for check in CHECKS.values() for finding in check(subnet, names.ports)]


def subjects_of(subnet: Subnet) -> dict[str, int]:
    """How many ports, links, nodes or directions each check is about."""
    ports = subnet.ports
    linked = int(np.count_nonzero(ports["is_linked"] & (ports["number"] > 0)))
    links = len(subnet.links)
    is_switch = subnet.kinds[ports["node"]] == SWITCH
    return {
        "ib-state": linked,
        "ib-silent": linked,
        "ib-width": links,
        "ib-speed": links,
        "ib-lmc": int(np.count_nonzero(_owns_lids(subnet))),
        NAMES: sum(map(bool, subnet.names)),
        "ib-routes": 1,
        BALANCE: int(np.count_nonzero(is_switch[subnet.links].all(axis=1))) * 2,
    }


def names_twice(subnets: Sequence[tuple[Subnet, Names]]) -> Iterator[Finding]:
    """Descriptions that several nodes of these subnets have; an adapter that is in several is one node."""
    nodes: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for subnet, names in subnets:
        first = dict(zip(subnet.ports["node"][::-1].tolist(), names.ends[::-1], strict=True))
        for node, (guid, name) in enumerate(zip(subnet.guids.tolist(), subnet.names, strict=True)):
            nodes[name].setdefault(guid, first.get(node, names.nodes[node]))
    for name, alike in sorted(nodes.items()):
        if name and len(alike) > 1:
            guids = _some([f"{guid:#018x}" for guid in alike])
            found = f"{len(alike)} nodes have the description {name[:DESCRIPTION_BYTES]!r}: {guids}"
            yield Finding(NAMES, "warn", tuple(alike.values()), found)


def in_words(about: Sequence[str]) -> str:
    """What a finding is about, shortened."""
    return _some(about) or "forwarding tables"


def _state(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    ports = subnet.ports
    for row in np.flatnonzero(
        ports["is_linked"] & (ports["state"] != ACTIVE) & (ports["number"] > 0)
    ).tolist():
        yield Finding(
            "ib-state",
            "fail",
            (names[row],),
            "has a link and is not active: no subnet manager has seen to it",
        )


def _silent(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for row in subnet.silent:
        yield Finding("ib-silent", "warn", (names[row],), "has a link to something that does not answer")


def _width(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for a, b in subnet.links:
        ends = subnet.ports[[a, b]]
        could, lanes = int(ends["widest"].min()), int(ends["width"].min())
        if 0 < lanes < could:
            yield Finding(
                "ib-width", "fail", (_link(names, a, b),), f"{lanes} of {could} lanes that both ends have"
            )


def _speed(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for a, b in subnet.links:
        ends = subnet.ports[[a, b]]
        could_bps, is_bps = int(ends["fastest_bps"].min()), int(ends["lane_bps"].min())
        if 0 < is_bps < could_bps:
            found = f"{format_rate(is_bps)} a lane, both ends could {format_rate(could_bps)}"
            yield Finding("ib-speed", "fail", (_link(names, a, b),), found)


def _owns_lids(subnet: Subnet) -> NDArray[np.bool_]:
    ports = subnet.ports
    return np.asarray((subnet.kinds[ports["node"]] == CHANNEL_ADAPTER) & (ports["lid"] > 0))


def _lmc(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    single = np.flatnonzero(_owns_lids(subnet) & (subnet.ports["lmc"] == 0)).tolist()
    if single:
        found = "LMC is 0: one way to each, and no other when a link fails"
        yield Finding("ib-lmc", "warn", tuple(names[row] for row in single), found)


def _names(subnet: Subnet, _: Sequence[str]) -> Iterator[Finding]:
    yield from names_twice([(subnet, Names(subnet))])


def _routes(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    of_all = balance(subnet, every_lid=True)
    if of_all.lost:
        found = f"{of_all.lost} of {of_all.flows_in_all} routes between hosts lead nowhere"
        yield Finding("ib-routes", "fail", (), found)
    yield from _uneven(subnet, names, of_all, "over all LIDs of hosts")
    if (subnet.ports["lmc"] > 0).any():
        yield from _uneven(subnet, names, balance(subnet, every_lid=False), "over hosts' first LIDs alone")


def _uneven(subnet: Subnet, names: Sequence[str], found: Balance, told: str) -> Iterator[Finding]:
    ratio = found.ratio
    worst = np.argsort(-ratio, kind="stable")
    worst = worst[ratio[worst] > MOST_UNEVEN]
    if not len(worst):
        return
    rows = found.ports[worst]
    links = tuple(_link(names, row, subnet.ports["peer"][row], ">") for row in rows)
    first = worst[0]
    yield Finding(
        BALANCE,
        "warn",
        links,
        f"{told} an all-to-all has {found.flows[first]} flows on {links[0]}, {found.even[first]:.4g} would be even: "
        f"{ratio[first]:.2f} times as many ({len(worst)} of {len(ratio)} directions over {MOST_UNEVEN})",
    )


def _link(names: Sequence[str], a: int, b: int, sign: str = "-") -> str:
    return f"{names[a]} {sign} {names[b]}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


CHECKS: dict[str, Callable[[Subnet, Sequence[str]], Iterator[Finding]]] = {
    "ib-state": _state,
    "ib-silent": _silent,
    "ib-width": _width,
    "ib-speed": _speed,
    "ib-lmc": _lmc,
    NAMES: _names,
    "ib-routes": _routes,
}
"""In the order in which they are told; each is given the ports' names. `ib-routes` tells of `ib-balance` too."""
