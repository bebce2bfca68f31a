"""Which RDMA device, port and GID a network interface is to be used by."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from cwdp.errors import ConfigError, RdmaError
from cwdp.rdma import sysfs, verbs
from cwdp.rdma.sysfs import SYSFS, Gid

ROCE_V2 = "RoCE v2"


@dataclass(frozen=True)
class PortWish:
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


def find_port(ifname: str, wish: PortWish, root: Path = SYSFS) -> RdmaPort:
    """The RoCE v2 GID of an interface: the one wished for, else its IPv4 address, else an IPv6 address of it.

    Raises:
        RdmaError: there is no such device, or the interface has none.
        ConfigError: there is no such port or GID, or it is of another kind or interface.
    """
    known = {device.device for device in sysfs.devices(root)}
    if wish.device is not None and wish.device not in known:
        raise RdmaError(
            f"there is no RDMA device {wish.device}",
            f"`cwdp rdma device` lists them: {', '.join(sorted(known))}",
        )
    of_interface = [gid for gid in sysfs.gids(root) if gid.netdev == ifname]
    if not of_interface and wish == PortWish():
        raise RdmaError(
            f"no RDMA device belongs to {ifname}",
            '`cwdp rdma port` lists those of each interface; a NIC without one takes transport = "xdp"',
        )
    fitting = [gid for gid in of_interface if _fits(gid, wish)]
    if not fitting:
        raise _absent(ifname, wish, root)
    chosen = min(fitting, key=_preference)
    return RdmaPort(chosen.device, chosen.port, chosen.index, chosen.gid)


def require_usable(port: RdmaPort) -> None:
    """See whether a device can be opened.

    Raises:
        RdmaError: pyverbs is missing, or the caller may not use the device.
    """
    verbs.open_device(port.device).close()


def _fits(gid: Gid, wish: PortWish) -> bool:
    if gid.type != ROCE_V2 or wish.device not in (None, gid.device) or wish.port not in (None, gid.port):
        return False
    address = IPv6Address(gid.gid)
    return not address.is_link_local if wish.gid_index is None else gid.index == wish.gid_index


def _preference(gid: Gid) -> tuple[bool, str, int, int]:
    return IPv6Address(gid.gid).ipv4_mapped is None, gid.device, gid.port, gid.index


def _absent(ifname: str, wish: PortWish, root: Path) -> ConfigError:
    """Why no GID fits."""
    where = " ".join(
        f"{name} {value}"
        for name, value in (("device", wish.device), ("port", wish.port), ("GID index", wish.gid_index))
        if value is not None
    )
    others = _indices(gid for gid in sysfs.gids(root) if _fits(gid, wish) and gid.netdev != ifname)
    if others:
        return ConfigError(f"{where} is not of {ifname}", f"RoCE v2 GIDs there: {others}")
    return ConfigError(
        f"{ifname} has no RoCE v2 GID {f'at {where}' if where else 'but link-local ones: it needs an address'}",
        f"its GIDs: {_indices(gid for gid in sysfs.gids(root) if gid.netdev == ifname) or 'none'}",
    )


def _indices(gids: Iterable[Gid]) -> str:
    return "; ".join(
        f"{one.device} port {one.port} index {one.index} ({one.type}, {one.netdev})" for one in gids
    )
