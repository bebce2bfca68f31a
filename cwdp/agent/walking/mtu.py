"""What an interface takes."""

import fcntl
import math
import socket
import struct

_SIOCGIFMTU = 0x8921  # netdevice(7)


def mtu_bytes(of: socket.socket, ifname: str) -> float:
    """What an interface of the socket's namespace takes; no bound where that is not to be had: then sending tells."""
    try:
        answer = fcntl.ioctl(of, _SIOCGIFMTU, struct.pack("16si16x", ifname.encode(), 0))
    except OSError:
        return math.inf
    return int(struct.unpack_from("=i", answer, 16)[0])
