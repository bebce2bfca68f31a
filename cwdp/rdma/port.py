"""Which RDMA device, port and GID a network interface is to be used by."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from cwdp.errors import ConfigError, CwdpError, RdmaError
from cwdp.rdma import sysfs, verbs
from cwdp.rdma.sysfs import SYSFS, Gid

ROCE_V2 = "RoCE v2"


@dataclass(frozen=True)
class PortChoice:
    """What is known beforehand; None is to be found."""

    device: str | None = None
    port: int | None = None
    gid_index: int | None = None


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device, and the GID to send from."""

    device: str
    port: int
    gid_index: int
    gid: str

    def __str__(self) -> str:
        return f"{self.device} port {self.port} GID {self.gid_index} ({self.gid})"


def find_port(ifname: str, choice: PortChoice, root: Path = SYSFS) -> RdmaPort:
    """The RoCE v2 GID of an interface: the one chosen, else its IPv4 address, else an IPv6 address of it.

    Raises:
        RdmaError: there is no such device, or the interface has none.
        ConfigError: there is no such port or GID, or it is of another kind or interface.
    """
    known = {device.device for device in sysfs.devices(root)}
    if choice.device is not None and choice.device not in known:
        raise RdmaError(
            f"there is no RDMA device {choice.device}",
            f"`cwdp rdma device` lists them: {', '.join(sorted(known))}",
        )
    best = None
    for gid in _candidates(ifname, choice, root):
        if gid.netdev != ifname or not _fits(gid, choice):
            continue
        if IPv6Address(gid.gid).ipv4_mapped:
            return _port(gid)
        best = best or gid
    if best is None:
        raise _absent(ifname, choice, root)
    return _port(best)


def require_usable(port: RdmaPort) -> None:
    """See whether a device can be opened.

    Raises:
        RdmaError: pyverbs is missing, or the caller may not use the device.
    """
    verbs.open_device(port.device).close()


def _port(gid: Gid) -> RdmaPort:
    return RdmaPort(gid.device, gid.port, gid.index, gid.gid)


def _candidates(ifname: str, choice: PortChoice, root: Path) -> Iterator[Gid]:
    """The GIDs to look at, those of the interface's own port first; others may be of a VLAN on it."""
    ports = [
        port
        for port in sysfs.ports(root)
        if choice.device in (None, port.device) and choice.port in (None, port.port)
    ]
    for port in sorted(ports, key=lambda port: port.netdev != ifname):
        if choice.gid_index is None:
            yield from sysfs.port_gids(port.device, port.port, root)
        elif (gid := sysfs.gid(port.device, port.port, choice.gid_index, root)) is not None:
            yield gid


def _fits(gid: Gid, choice: PortChoice) -> bool:
    is_own = choice.gid_index is not None or not IPv6Address(gid.gid).is_link_local
    return gid.type == ROCE_V2 and is_own


def _absent(ifname: str, choice: PortChoice, root: Path) -> CwdpError:
    """Why no GID fits."""
    found = list(_candidates(ifname, choice, root))
    mine = [gid for gid in found if gid.netdev == ifname]
    if choice == PortChoice() and not mine:
        return RdmaError(
            f"no RDMA device belongs to {ifname}",
            '`cwdp rdma port` lists those of each interface; a NIC without one takes transport = "xdp"',
        )
    named = (("device", choice.device), ("port", choice.port), ("GID index", choice.gid_index))
    where = " ".join(f"{name} {value}" for name, value in named if value is not None)
    if mine and choice.gid_index is None:
        return ConfigError(
            f"{ifname} has no RoCE v2 GID of an address",
            f"it needs an IPv4 or IPv6 address; its GIDs: {_listed(mine)}",
        )
    return ConfigError(
        f"{where} is no RoCE v2 GID of {ifname}",
        f"`cwdp rdma gid` lists them; there is {_listed(found) or 'none'}",
    )


def _listed(gids: Iterable[Gid]) -> str:
    return ", ".join(f"{one.gid} ({one.type}, {one.netdev})" for one in gids)
