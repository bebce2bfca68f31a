"""Fleets that ask, and what they would tell of a fabric in arithmetic."""

import socket
from collections.abc import Callable, Collection

from cwdp.shared.audit.asks import MOST_SHOWN, MOST_SILENT, Ask, Asked, AskedNic, Silent
from cwdp.shared.bus.messages import Nic, nic_id
from manager.audit.network.asks import Plan, plan
from manager.probing.schedule import Member

FIRST_PORT = 50_000

Answers = Callable[[str, str, int], bool]
"""Whether a NIC is answered by another over a path, by its number."""


def members(hosts: int, nics: int) -> list[Member]:
    """Hosts h1 and so on, with NICs nic0 and so on, that have both address families."""
    found = []
    for number in range(hosts * nics):
        host, nic = divmod(number, nics)
        found.append(
            (
                f"h{host + 1}",
                Nic(
                    ifname=f"nic{nic}",
                    mac="",
                    ipv4=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
                    ipv6=f"fd00::{number + 1:x}",
                    carrier=True,
                    mode="native",
                ),
            )
        )
    return found


def leaf_of(who: Collection[Member], at_leaf: int) -> dict[str, str]:
    """So many NICs that follow each other are at each leaf."""
    return {nic_id(host, nic.ifname): f"l{number // at_leaf + 1}" for number, (host, nic) in enumerate(who)}


def planned(hosts: int, nics: int = 1, at_leaf: int = 4, ways: int = 4) -> Plan:
    """All hosts ask all NICs."""
    who = members(hosts, nics)
    names = {host for host, _ in who}
    return plan(who, names, family="4", ways=ways, leaf=leaf_of(who, at_leaf), seed=1)


def told(made: Plan, answers: Answers) -> dict[str, Asked]:
    """What all hosts tell; the ports of a pair lead over the paths in turn."""
    owner = {target.addr: target.nic for target in made.targets}
    return {host: _of_host(made, host, order, owner, answers) for host, order in made.orders.items()}


def _of_host(made: Plan, host: str, order: Ask, owner: dict[str, str], answers: Answers) -> Asked:
    addresses = [socket.inet_ntoa(order.ipv4[at : at + 4]) for at in range(0, len(order.ipv4), 4)]
    nics, silent = [], []
    for ifname in order.nics:
        back, mine = 0, []
        for addr in addresses:
            lost = [
                FIRST_PORT + port
                for port in range(order.ports)
                if not answers(nic_id(host, ifname), owner[addr], port % max(made.ways, 1))
            ]
            back += order.ports - len(lost)
            if lost:
                mine.append(
                    Silent(
                        nic=ifname,
                        dst_addr=addr,
                        asked=order.ports,
                        answered=order.ports - len(lost),
                        sports=lost[:MOST_SHOWN],
                    )
                )
        nics.append(AskedNic(nic=ifname, asked=order.ports * len(addresses), answered=back))
        silent += mine if back else []
    silent.sort(key=lambda one: one.answered > 0)
    return Asked(nics=nics, silent=silent[:MOST_SILENT], beyond=max(len(silent) - MOST_SILENT, 0))
