"""Keeps the detours of this host's NICs as the manager wants them, and tells NICs in whose place they stand."""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from cwdp.agent.links import Link, LinkTable
from cwdp.agent.steering.desired import Reconciler
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.detours import Detour, Detours, Partner
from cwdp.dataplane.steering.routes import gateways
from cwdp.dataplane.steering.steering import parse_address
from cwdp.errors import CwdpError, DataplaneError, SteeringError
from cwdp.shared.addresses import Address
from cwdp.shared.bus import messages


class DesiredDetours(Reconciler):
    """The detours that are wanted of each NIC; see `Reconciler`.

    Args:
        ifnames: the NICs.
        partners: the NIC that stands in for each; those that have none, or are to have none, are left out.
        links: tells the addresses of the NICs.
        refuse: told, once, of each detour that cannot be applied: the NIC and why.
    """

    def __init__(
        self,
        ifnames: Sequence[str],
        partners: Mapping[str, str],
        links: LinkTable,
        refuse: Callable[[str, str], None],
    ) -> None:
        super().__init__(ifnames, refuse, "detour_refused")
        self._partners, self._links = partners, links
        self._detours: list[messages.Detour] | None = None

    def want(self, detours: list[messages.Detour]) -> None:
        """Have this from now on."""
        if detours != self._detours:
            self._detours = detours
            self._look_at(self._ifnames)

    def loaded(self, ifname: str) -> None:
        """The dataplane of a NIC was found or loaded, or its addresses have changed."""
        self._look_at({ifname, self._partners.get(ifname, ifname)})

    def _reconcile(self, ifname: str) -> list[CwdpError]:
        if not tree.here(ifname).path.exists():
            raise DataplaneError(f"{ifname} has no dataplane", "the agent tries again by itself")
        wanted = None
        if self._detours is not None:
            wanted = [detour for detour in self._detours if detour.nic == ifname]
        partner = self._partners.get(ifname)
        if partner is None:
            forget_partner(ifname)
            return apply(ifname, None, None, wanted)
        link = self._links.get(partner)
        if link is None or not tree.here(partner).path.exists():
            return apply(ifname, None, None, wanted)
        return apply(ifname, partner, link, wanted)


def forget_partner(ifname: str) -> None:
    """Have a NIC stand in for no other, and no other for it."""
    with tree.locked(), Maps(tree.here(ifname)) as maps:
        Detours(maps, None).set_partner(None)


def apply(
    ifname: str, partner: str | None, link: Link | None, wanted: list[messages.Detour] | None
) -> list[CwdpError]:
    """Make the detours of a NIC what is wanted.

    Args:
        ifname: the NIC.
        partner: the one that stands in for it, and it for that; None while there is none.
        link: what is known of that.
        wanted: None changes no detour.

    Returns:
        Why some of it could not be.

    Raises:
        CwdpError: a NIC has no dataplane.
        OSError: its maps cannot be opened or changed.
    """
    stand_in = None if partner is None or link is None else _stand_in(link)
    detours, refused = translate(wanted or [], partner, stand_in)
    with ExitStack() as stack:
        stack.enter_context(tree.locked())
        maps = stack.enter_context(Maps(tree.here(ifname)))
        other = stack.enter_context(Maps(tree.here(partner))) if partner is not None else None
        table = Detours(maps, other)
        if stand_in is not None:
            loader.take_in(tree.here(ifname))
            table.set_partner(stand_in)
        if wanted is not None:
            refused += table.reconcile(detours)
    return refused


def _stand_in(link: Link) -> Partner:
    ipv4, ipv6 = link.address(socket.AF_INET), link.address(socket.AF_INET6)
    return Partner(
        ifindex=link.index,
        mac=link.mac,
        ipv4=parse_address(ipv4) if ipv4 else None,
        ipv6=parse_address(ipv6) if ipv6 else None,
    )


def translate(
    wanted: list[messages.Detour], partner: str | None, stand_in: Partner | None
) -> tuple[dict[Address, Detour], list[CwdpError]]:
    """Detours as the dataplane has them, without those that are impossible, and why not."""
    parsed: dict[Address, tuple[Address | None, int]] = {}
    refused: list[CwdpError] = []
    for detour in wanted:
        try:
            other = parse_address(detour.other_addr) if detour.other_addr else None
            parsed[parse_address(detour.dst_addr)] = other, detour.sport
        except SteeringError as error:
            refused.append(error)
    ways: dict[Address, Address | None] = {}
    if partner is not None and stand_in is not None:
        sources: dict[int, Address] = {a.version: a for a in (stand_in.ipv4, stand_in.ipv6) if a is not None}
        ways = gateways(partner, sources, parsed)
    return {
        dst: Detour(other, sport, by_other=dst in ways, gateway=ways.get(dst))
        for dst, (other, sport) in parsed.items()
    }, refused
