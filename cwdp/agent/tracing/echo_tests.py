"""Echo tests of switches: which of a path's links lose packets, where no probe between hosts can tell them apart.

The manager asks for a few, on suspicion only: an echo request to a switch's own address crosses the links up to that
switch and no further. Nothing else depends on switches that answer.
"""

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection
from ipaddress import ip_address

from cwdp.agent.inet import internet_checksum
from cwdp.shared.bus.messages import BounceOrder, BounceReport

COUNTERS = ("bounces_sent", "bounces_refused", "bounces_failed")
MOST_ECHOES = 256
MOST_SECONDS = 1.0
MOST_UNDER_WAY = 4
WAIT_S = 0.1

_PAYLOAD = bytes(32)
_KINDS = {4: (8, 0), 6: (128, 129)}
"""Type numbers of echo request and reply by IP version (RFC 792, RFC 4443)."""

_V4_HEADER_UNIT = 4
_LONGEST = 2048


class EchoTests:
    """Runs the echo tests that the manager orders of one host.

    Args:
        host: its name.
        ifnames: its NICs; no other interface is sent from.
        report: takes what came of an order.

    Attributes:
        counters: totals by name.
    """

    def __init__(self, host: str, ifnames: Collection[str], report: Callable[[BounceReport], object]) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._host, self._ifnames, self._report = host, ifnames, report
        self._under_way: set[asyncio.Task[None]] = set()

    def order(self, order: BounceOrder) -> None:
        """Begin with what is asked for; too much of it is refused."""
        fits = 0 < order.count <= MOST_ECHOES and 0 <= order.seconds <= MOST_SECONDS
        if order.nic not in self._ifnames or not fits or len(self._under_way) >= MOST_UNDER_WAY:
            self.counters["bounces_refused"] += 1
            return
        task = asyncio.create_task(self._run(order))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _run(self, order: BounceOrder) -> None:
        try:
            echo = Echo(order.nic, order.target)
        except (OSError, ValueError):
            self.counters["bounces_failed"] += 1
            return
        with contextlib.closing(echo):
            begin_s = time.monotonic()
            for number in range(order.count):
                echo.send(number)
                late_s = time.monotonic() - begin_s - (number + 1) * order.seconds / order.count
                if late_s < 0:
                    await asyncio.sleep(-late_s)
                    echo.hear()
            await asyncio.sleep(WAIT_S)
            echo.hear()
            self.counters["bounces_sent"] += echo.sent
            self._report(
                BounceReport(
                    host=self._host,
                    nic=order.nic,
                    number=order.number,
                    target=order.target,
                    sent=echo.sent,
                    lost=echo.sent - len(echo.answered),
                )
            )


class Echo:
    """A raw socket that sends echo requests to one address and hears the replies.

    Raises:
        OSError: it cannot be made or bound.
        ValueError: the target is no address.
    """

    def __init__(self, ifname: str, target: str) -> None:
        self._version = ip_address(target).version
        self._request, self._reply = _KINDS[self._version]
        family, protocol = (
            (socket.AF_INET, socket.IPPROTO_ICMP)
            if self._version == 4
            else (socket.AF_INET6, socket.IPPROTO_ICMPV6)
        )
        self._identifier = random.getrandbits(16)
        self._expected: set[int] = set()
        self.sent = 0
        self.answered: set[int] = set()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, ifname.encode() + b"\0")
            self._socket.connect((target, 0))
        except OSError:
            self._socket.close()
            raise

    def send(self, number: int) -> None:
        """Send a request, if it can be sent."""
        packet = echo_request(self._request, self._identifier, number)
        with contextlib.suppress(OSError):
            self._socket.send(packet)
            self._expected.add(number)
            self.sent += 1

    def hear(self) -> None:
        """Take in the replies that have come."""
        with contextlib.suppress(OSError):
            while True:
                data = self._socket.recv(_LONGEST)
                number = reply_number(data, self._version, self._reply, self._identifier)
                if number in self._expected:
                    self.answered.add(number)

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


def echo_request(kind: int, identifier: int, number: int) -> bytes:
    """An ICMP echo request; over IPv6 the kernel fills the checksum in."""
    checksum = internet_checksum(struct.pack(">BBHHH", kind, 0, 0, identifier, number) + _PAYLOAD)
    return struct.pack(">BBHHH", kind, 0, checksum, identifier, number) + _PAYLOAD


def reply_number(data: bytes, version: int, kind: int, identifier: int) -> int | None:
    """The sequence number of an echo reply to us; None for anything else. IPv4 sockets give the IP header too."""
    start = _V4_HEADER_UNIT * (data[0] & 0xF) if version == 4 and data else 0
    if len(data) < start + 8:
        return None
    got_kind, code, _, got_identifier, number = struct.unpack_from(">BBHHH", data, start)
    return int(number) if (got_kind, code, got_identifier) == (kind, 0, identifier) else None
