"""The rate of a link, as its driver tells ethtool; in whichever network namespace the calling thread is."""

import ctypes
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
ETHTOOL_GSET = 1
COMMAND_BYTES = 44
SPEED_OFFSET, SPEED_HIGH_OFFSET = 12, 28
"""Of `speed` and `speed_hi` in struct ethtool_cmd (linux/ethtool.h)."""

MBIT = 1_000_000
UNKNOWN = 0xFFFFFFFF


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
