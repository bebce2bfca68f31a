"""What a NIC's driver tells of itself: ETHTOOL_GDRVINFO of linux/ethtool.h."""

import fcntl
import socket
import struct
from array import array
from dataclasses import dataclass

SIOCETHTOOL, ETHTOOL_GDRVINFO = 0x8946, 0x3
DRVINFO_BYTES, NAME_BYTES = 196, 32


@dataclass(frozen=True)
class DriverInfo:
    """`struct ethtool_drvinfo`, its first four texts."""

    driver: str
    version: str
    firmware: str
    bus: str


def driver_info(ifname: str) -> DriverInfo:
    """Ask a NIC's driver.

    Raises:
        OSError: there is no such NIC, or no driver to ask.
    """
    buffer = array("B", struct.pack("=I", ETHTOOL_GDRVINFO).ljust(DRVINFO_BYTES, b"\0"))
    request = struct.pack("16sP", ifname.encode(), buffer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, SIOCETHTOOL, request)
    told = buffer.tobytes()[4:]
    return DriverInfo(*(_text(told[i * NAME_BYTES : (i + 1) * NAME_BYTES]) for i in range(4)))


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode(errors="replace")
