"""The rate of a link, as its driver tells ethtool; in whichever network namespace the calling thread is."""

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable

SIOCETHTOOL = 0x8946
ETHTOOL_GSET = 1
COMMAND_BYTES = 44
SPEED_OFFSET, SPEED_HIGH_OFFSET = 12, 28
"""Of `speed` and `speed_hi` in struct ethtool_cmd (linux/ethtool.h)."""

ETHTOOL_GDRVINFO = 3
DRIVER_INFO_BYTES = 196
DRIVER = slice(4, 36)
"""Of struct ethtool_drvinfo."""

NO_LINKS = ("veth", "tun", "virtio_net")
"""Drivers whose speed is a figure that somebody set: no wire limits them to it."""

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
    information = _ask(ifname, ETHTOOL_GDRVINFO, DRIVER_INFO_BYTES)
    driver = "" if information is None else information[DRIVER].split(b"\0")[0].decode(errors="replace")
    return None if driver in NO_LINKS else link_bps(ifname)


def link_bps(ifname: str) -> int | None:
    """Bits per second; None where the driver has nothing to say."""
    command = _ask(ifname, ETHTOOL_GSET, COMMAND_BYTES)
    if command is None:
        return None
    low, high = (struct.unpack_from("=H", command, offset)[0] for offset in (SPEED_OFFSET, SPEED_HIGH_OFFSET))
    mbps = high << 16 | low
    return mbps * MBIT if 0 < mbps < UNKNOWN else None


def _ask(ifname: str, what: int, size: int) -> bytes | None:
    """What an interface's driver answers ethtool; None where it does not."""
    command = ctypes.create_string_buffer(struct.pack("=I", what), size)
    request = struct.pack("16sP16x", ifname.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, SIOCETHTOOL, request)
        except OSError:
            return None
    return command.raw
