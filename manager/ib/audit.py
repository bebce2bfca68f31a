"""What is amiss in an InfiniBand subnet that works: slow links, one LID a port, names twice, uneven routes. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, Subnet
from cwdp.shared.rates import format_rate
from manager.ib.evenness import Balance, balance

ACTIVE = 4
"""Of a port's state (IBTA volume 1, 14.2.5.6)."""

MOST_UNEVEN = 1.25
"""A link with more than so many times its even share is told of."""

MOST_NAMED = 3


class Finding(NamedTuple):
    """Something that is not as it should be: by which check, what it is about, and what was found."""

    check: str
    verdict: Literal["warn", "fail"]
    about: str
    found: str


def findings_of(subnet: Subnet) -> list[Finding]:
    """All findings, by check."""
    ports = Names(subnet).ports
    return [finding for check in CHECKS.values() for finding in check(subnet, ports)]


def _state(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    ports = subnet.ports
    for row in np.flatnonzero(
        ports["is_linked"] & (ports["state"] != ACTIVE) & (ports["number"] > 0)
    ).tolist():
        yield Finding(
            "ib-state",
            "fail",
            names[row],
            "has a link and is not active: no subnet manager has seen to it",
        )


def _silent(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for row in subnet.silent:
        yield Finding("ib-silent", "warn", names[row], "has a link to something that does not answer")


def _width(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for a, b in subnet.links:
        ends = subnet.ports[[a, b]]
        could, lanes = int(ends["widest"].min()), int(ends["width"].min())
        if 0 < lanes < could:
            yield Finding(
                "ib-width", "fail", _link(names, a, b), f"{lanes} of {could} lanes that both ends have"
            )


def _speed(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    for a, b in subnet.links:
        ends = subnet.ports[[a, b]]
        could_bps, is_bps = int(ends["fastest_bps"].min()), int(ends["lane_bps"].min())
        if 0 < is_bps < could_bps:
            found = f"{format_rate(is_bps)} a lane, both ends could {format_rate(could_bps)}"
            yield Finding("ib-speed", "fail", _link(names, a, b), found)


def _lmc(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    ports = subnet.ports
    owns = (subnet.kinds[ports["node"]] == CHANNEL_ADAPTER) & (ports["lid"] > 0)
    single = np.flatnonzero(owns & (ports["lmc"] == 0))
    if len(single):
        about = _some([names[row] for row in single.tolist()])
        found = f"LMC is 0 at {len(single)} of {int(owns.sum())} ports of hosts: one way to each, and no other when a link fails"
        yield Finding("ib-lmc", "warn", about, found)


def _names(subnet: Subnet, _: Sequence[str]) -> Iterator[Finding]:
    for name, count in sorted(Counter(filter(None, subnet.names)).items()):
        if count > 1:
            guids = [
                f"{int(guid):#018x}"
                for guid, own in zip(subnet.guids, subnet.names, strict=True)
                if own == name
            ]
            yield Finding("ib-names", "warn", name, f"{count} nodes have this description: {_some(guids)}")


def _routes(subnet: Subnet, names: Sequence[str]) -> Iterator[Finding]:
    of_all = balance(subnet, every_lid=True)
    if of_all.lost:
        found = f"{of_all.lost} of {of_all.flows_in_all} routes between hosts lead nowhere"
        yield Finding("ib-routes", "fail", "forwarding tables", found)
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
    links = [_link(names, row, subnet.ports["peer"][row], ">") for row in rows]
    first = worst[0]
    yield Finding(
        "ib-balance",
        "warn",
        _some(links),
        f"{told} an all-to-all has {found.flows[first]} flows on the first, {found.even[first]:.4g} would be even: "
        f"{ratio[first]:.2f} times as many ({len(worst)} of {len(ratio)} directions over {MOST_UNEVEN})",
    )


def _link(names: Sequence[str], a: int, b: int, sign: str = "-") -> str:
    return f"{names[a]} {sign} {names[b]}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


CHECKS: dict[str, Callable[[Subnet, Sequence[str]], Iterator[Finding]]] = {
    "ib-state": _state,
    "ib-silent": _silent,
    "ib-width": _width,
    "ib-speed": _speed,
    "ib-lmc": _lmc,
    "ib-names": _names,
    "ib-routes": _routes,
}
"""In the order in which they are told; each is given the ports' names. `ib-routes` tells of `ib-balance` too."""
