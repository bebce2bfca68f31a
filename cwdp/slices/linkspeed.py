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


def link_bps(ifname: str) -> int | None:
    """Bits per second; None where the driver has nothing to say."""
    command = ctypes.create_string_buffer(struct.pack("=I", ETHTOOL_GSET), COMMAND_BYTES)
    request = struct.pack("16sP16x", ifname.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, SIOCETHTOOL, request)
        except OSError:
            return None
    low, high = (
        struct.unpack_from("=H", command.raw, offset)[0] for offset in (SPEED_OFFSET, SPEED_HIGH_OFFSET)
    )
    mbps = high << 16 | low
    return mbps * MBIT if 0 < mbps < UNKNOWN else None
