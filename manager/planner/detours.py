"""Which detours hosts are to have: for every address that they steer to, round a dead NIC at either end."""

import zlib
from collections.abc import Iterable, Mapping

from cwdp.shared.bus.messages import Detour, Hello, Nic, SteerQp
from cwdp.shared.partners import partner_of
from manager.hosts.elsewhere import PodHost
from manager.probing.schedule import FIRST_PORT, PORT_MASK


def detours(hellos: Iterable[Hello | PodHost], steer: Mapping[str, list[SteerQp]]) -> dict[str, list[Detour]]:
    """The detours of each host, in order; a host that has nothing to go round by is in no list.

    Args:
        hellos: what each host has said of itself, those of other pods among them.
        steer: what each host is to steer.
    """
    known = {hello.host: hello for hello in hellos}
    others = _other_addresses(known.values())
    found: dict[str, list[Detour]] = {}
    for host, steered in steer.items():
        hello = known.get(host)
        if hello is None or hello.observe_only:
            continue
        ifnames = [nic.ifname for nic in hello.nics]
        pairs = sorted({(steer.nic, steer.dst_addr) for steer in steered if steer.nic in ifnames})
        mine = [
            Detour(nic=nic, dst_addr=dst, other_addr=others.get(dst), sport=_port(host, nic, dst))
            for nic, dst in pairs
            if dst in others or partner_of(ifnames, nic) is not None
        ]
        if mine:
            found[host] = mine
    return found


def _other_addresses(hellos: Iterable[Hello | PodHost]) -> dict[str, str]:
    """For every address of a NIC, that of the NIC that stands in for it, of the same family."""
    others: dict[str, str] = {}
    for hello in hellos:
        nics = {nic.ifname: nic for nic in hello.nics}
        for ifname, nic in nics.items():
            partner = partner_of(list(nics), ifname)
            if partner is not None and not hello.observe_only and _takes_in(nics[partner]):
                others |= _pair(nic, nics[partner])
    return others


def _takes_in(nic: Nic) -> bool:
    """Whether a NIC can take in what is for the one beside it."""
    return nic.mode != "absent" and nic.takes_detours


def _pair(nic: Nic, partner: Nic) -> dict[str, str]:
    families = ((nic.ipv4, partner.ipv4), (nic.ipv6, partner.ipv6))
    return {mine: other for mine, other in families if mine and other}


def _port(host: str, nic: str, dst: str) -> int:
    """A source port that is always the same: detours of many pairs spread over the paths."""
    return FIRST_PORT + (zlib.crc32(f"{host}/{nic}>{dst}".encode()) & PORT_MASK)
