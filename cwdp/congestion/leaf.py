"""Moving the rate of one htb class, in one short netlink message: some 20 us, where pyroute2 takes half a millisecond.

The message is the RTM_NEWTCLASS that changes a class that is there (linux/rtnetlink.h, linux/pkt_sched.h); what waits in
the class stays. No answer is asked for; what the kernel refuses it says anyway (`take_errors`).
"""

import errno
import math
import socket
import struct
from dataclasses import dataclass

RTM_NEWTCLASS = 40
NLM_F_REQUEST = 1
NLMSG_ERROR = 2
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
TC_LINKLAYER_ETHERNET = 1
TICK_NS = 64
"""Of bursts, which the kernel counts in time (PSCHED_SHIFT)."""

RATE32_MAX = 0xFFFFFFFF
BURST_S = 0.002
BURST_MIN_BYTES = 2_048
HEADER = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
ATTRIBUTE = struct.Struct("=HH")
RATESPEC = struct.Struct("=BBHhHI")
PARAMETERS_TAIL = struct.Struct("=IIIII")
ERROR_AT = HEADER.size
MORE_THAN_ANSWERED = 65536


@dataclass(frozen=True)
class Limits:
    """What a class is guaranteed, its ceiling, its place in line, and how much it sends in its turn."""

    rate_bps: float
    ceiling_bps: float
    priority: int
    quantum_bytes: int


def open_netlink() -> socket.socket:
    """A route socket in this network namespace.

    Raises:
        OSError: there is none to be had.
    """
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.bind((0, 0))
    opened.setblocking(False)
    return opened


def change_class(ifindex: int, handle: int, parent: int, limits: Limits) -> bytes:
    """The message that changes a class; errors come only if it is not there any more."""
    options = _attribute(TCA_HTB_PARMS, _parameters(limits))
    for kind, rate_bps in ((TCA_HTB_RATE64, limits.rate_bps), (TCA_HTB_CEIL64, limits.ceiling_bps)):
        if rate_bps / 8 >= RATE32_MAX:
            options += _attribute(kind, struct.pack("=Q", int(rate_bps / 8)))
    body = TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, 0)
    body += _attribute(TCA_KIND, b"htb\0") + _attribute(TCA_OPTIONS, options)
    return HEADER.pack(HEADER.size + len(body), RTM_NEWTCLASS, NLM_F_REQUEST, 0, 0) + body


def take_errors(netlink: socket.socket) -> int:
    """How many changes have been refused since the last call."""
    refused = 0
    while True:
        try:
            answer = netlink.recv(MORE_THAN_ANSWERED)
        except BlockingIOError:
            return refused
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return refused + 1
        _, kind, _, _, _ = HEADER.unpack_from(answer)
        refused += kind == NLMSG_ERROR and struct.unpack_from("=i", answer, ERROR_AT)[0] != 0


def _attribute(kind: int, value: bytes) -> bytes:
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def _parameters(limits: Limits) -> bytes:
    """A struct tc_htb_opt."""
    rates = (max(limits.rate_bps / 8, 1.0), max(limits.ceiling_bps / 8, 1.0))
    specs = b"".join(
        RATESPEC.pack(0, TC_LINKLAYER_ETHERNET, 0, -1, 0, min(int(rate), RATE32_MAX)) for rate in rates
    )
    bursts = (_ticks(max(BURST_MIN_BYTES, rate * BURST_S), rate) for rate in rates)
    level = 0
    return specs + PARAMETERS_TAIL.pack(*bursts, limits.quantum_bytes, level, limits.priority)


def _ticks(burst_bytes: float, rate_bytes_s: float) -> int:
    return min(math.ceil(burst_bytes / rate_bytes_s * 1e9 / TICK_NS), RATE32_MAX)
