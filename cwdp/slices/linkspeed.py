"""The rate of a link, as its driver tells ethtool; in whichever network namespace the calling thread is.

The speed is asked for by ioctl: that takes some microseconds and can be done from a running event loop, which
pyroute2's generic netlink cannot.
"""

import socket
from collections.abc import Callable
from contextlib import closing

from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool

from cwdp.dataplane.kernel.rtnetlink import LinkInfo, link_info

MBIT = 1_000_000
UNKNOWN = 0xFFFFFFFF


class LinkSpeed:
    """The rate of one link, asked for when its carrier comes: until that goes it stays what it is, and asking takes a lock."""

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        self._carrier = False
        self._bps: int | None = None

    def bps(self, *, carrier: bool) -> int | None:
        """Bits per second; None without a carrier, and where the driver has nothing to say."""
        if carrier != self._carrier:
            self._carrier, self._bps = carrier, self._ask() if carrier else None
        return self._bps


def wire_bps(ifname: str) -> int | None:
    """Bits per second that a wire limits an interface to; None where none does, or the driver has nothing to say."""
    try:
        has_wire = not _is_software(link_info(socket.if_nametoindex(ifname)))
    except OSError:
        return None
    return link_bps(ifname) if has_wire else None


def link_bps(ifname: str) -> int | None:
    """Bits per second; None where the driver has nothing to say."""
    try:
        with closing(IoctlEthtool(ifname)) as ethtool:
            mbps: int = ethtool.get_link_settings().speed
    except (EthtoolError, OSError):
        return None
    return mbps * MBIT if 0 < mbps < UNKNOWN else None


def _is_software(link: LinkInfo) -> bool:
    """Whether its speed is a figure that somebody set: a veth, a tun or tap, or the network card of a virtual machine."""
    return link.kind in ("veth", "tun") or link.bus == "virtio"
