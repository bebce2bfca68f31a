"""Walks that an audit orders: packets sent with raw sockets, and what switches answer.

How many of its packets a switch answers is the switch's: one that runs Linux with its defaults answers a host six at once
and then one a second (`icmp_ratelimit`), so of more walks over it at a time than six most hops are `none`.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from cwdp.agent.inet import family_of
from cwdp.agent.links import LinkTable
from cwdp.agent.probing.sender import sending_socket
from cwdp.agent.tracing.packets import FlowPath, HopProbe, QuoteKey, quote_key
from cwdp.agent.tracing.sockets import icmp_socket
from cwdp.agent.walking.course import Course
from cwdp.agent.walking.mtu import mtu_bytes
from cwdp.agent.walking.packets import KINDS, HopAnswer, build, read_icmpv4, read_icmpv6
from cwdp.shared.addresses import is_of_a_host
from cwdp.shared.audit.facts import Walk, Walked

COUNTERS = ("walks_made", "walks_failed", "walk_packets_sent")
WALKS_S = 20.0
STEP_S = 0.02
MOST_PER_STEP = 256
NO_TIME = "no time was left"

_LONGEST = 2048
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23  # linux/in.h, linux/in6.h
_PMTUDISC_PROBE = 3
"""DF, and what is known of the path's MTU does not count."""

Way = tuple[str, socket.AddressFamily]


@dataclass(frozen=True)
class Limits:
    """What all walks of an order may cost.

    Attributes:
        packets_per_s: of one host.
        wait_s: for the answer to a packet.
        all_s: for all; what is not done then is told as not made.
        at_once: walks under way at the same time.
    """

    packets_per_s: float = 200.0
    wait_s: float = 0.3
    all_s: float = WALKS_S
    at_once: int = 32


class Walks:
    """Makes walks from this host.

    Args:
        ifnames: its NICs; no other interface is sent from.
        links: whose addresses the packets have.
        port: UDP destination port, that of the agent's probes.
        limits: what they may cost.

    Attributes:
        counters: totals by name (`COUNTERS`).
    """

    def __init__(
        self, ifnames: Collection[str], links: LinkTable, port: int, limits: Limits | None = None
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._ifnames, self._links, self._port = ifnames, links, port
        self._limits = limits or Limits()

    async def make(self, walks: Sequence[Walk]) -> list[Walked]:
        """What comes of walks, in their order, within `all_s`; one that cannot be made has a `trouble`."""
        sockets = _Sockets()
        try:
            walking = _Walking(self._limits, sockets, self._port)
            for number, walk in enumerate(walks):
                try:
                    path = self._path(walk)
                    sockets.open(path)
                    sockets.require_fit(path, walk.size_bytes)
                except _Refused as why:
                    walking.walked[number] = Walked(walk=walk, trouble=str(why))
                else:
                    walking.waiting.append((number, Course(walk, path, self._limits.wait_s)))
            await walking.run()
        finally:
            sockets.close()
        walked = [walking.walked[number] for number in range(len(walks))]
        failed = sum(bool(one.trouble) for one in walked)
        self.counters["walks_failed"] += failed
        self.counters["walks_made"] += len(walked) - failed
        self.counters["walk_packets_sent"] += walking.sent
        return walked

    def _path(self, walk: Walk) -> FlowPath:
        if walk.nic not in self._ifnames:
            raise _Refused(f"{walk.nic} is none of the agent's NICs")
        try:
            to = ipaddress.ip_address(walk.dst_addr)
        except ValueError:
            raise _Refused(f"{walk.dst_addr!r} is no address") from None
        if not is_of_a_host(to):
            raise _Refused(f"{to} is no address of a host in the fabric")
        link = self._links.get(walk.nic)
        if link is None:
            raise _Refused(f"there is no interface {walk.nic}")
        destination = str(to)
        source = link.address(family_of(destination))
        if source is None:
            raise _Refused(f"{walk.nic} has no IPv{to.version} address")
        return FlowPath(walk.nic, source, destination, walk.sport)


class _Refused(Exception):  # noqa: N818 - no mistake, an outcome
    """A walk cannot be made, and why."""


class _Walking:
    """All walks of an order.

    Attributes:
        waiting: by their number, those that have not begun.
        walked: what came of them.
        sent: packets.
    """

    def __init__(self, limits: Limits, sockets: "_Sockets", port: int) -> None:
        self.waiting: deque[tuple[int, Course]] = deque()
        self.walked: dict[int, Walked] = {}
        self.sent = 0
        self._limits, self._sockets, self._port = limits, sockets, port
        self._under_way: deque[tuple[int, Course]] = deque()
        self._probes: dict[QuoteKey, list[tuple[Course, HopProbe]]] = {}

    async def run(self) -> None:
        """Until all are done, or no time is left."""
        now_s = begin_s = time.monotonic()
        packets = 0.0
        most = max(1.0, self._limits.packets_per_s * STEP_S)
        while self._turn(now_s) and now_s - begin_s < self._limits.all_s:
            packets = min(most, packets + self._limits.packets_per_s * STEP_S)
            while packets >= 1 and self._send_next(now_s):
                packets -= 1
            await asyncio.sleep(STEP_S)
            now_s = time.monotonic()
        for number, course in [*self._under_way, *self.waiting]:
            self.walked[number] = Walked(walk=course.walk, trouble=NO_TIME)

    def _turn(self, now_s: float) -> bool:
        """Hear, end what is over, begin as many; whether anything is under way."""
        for answer in self._sockets.hear():
            self._take(answer)
        for number, course in list(self._under_way):
            if course.is_over(now_s):
                self._end(number, course, Walked(walk=course.walk, hops=course.hops()))
        while self.waiting and len(self._under_way) < self._limits.at_once:
            self._under_way.append(self.waiting.popleft())
        return bool(self._under_way)

    def _send_next(self, now_s: float) -> bool:
        """Send a packet of whose turn it is; False where nobody has one to send now."""
        for _ in range(len(self._under_way)):
            number, course = self._under_way[0]
            self._under_way.rotate(-1)
            limit = course.next_limit(now_s)
            if limit is not None:
                self._send(number, course, limit)
                return True
        return False

    def _send(self, number: int, course: Course, limit: int) -> None:
        walk = course.walk
        probe = build(course.path, limit, self._port, size_bytes=walk.size_bytes, tos=walk.tos)
        kept = replace(probe, packet=probe.packet[:_LONGEST])
        self._probes.setdefault(probe.key, []).append((course, kept))
        try:
            self.sent += self._sockets.send(probe)
        except _Refused as why:
            self._end(number, course, Walked(walk=walk, trouble=str(why)))

    def _take(self, answer: HopAnswer) -> None:
        for course, probe in self._probes.get(quote_key(answer.quote), []):
            if probe.is_quoted_by(answer.quote):
                course.hear(probe.hop_limit, answer)

    def _end(self, number: int, course: Course, walked: Walked) -> None:
        self.walked[number] = walked
        self._under_way.remove((number, course))
        self._probes = {
            key: others
            for key, probes in self._probes.items()
            if (others := [one for one in probes if one[0] is not course])
        }


class _Sockets:
    """Those that walks need, opened when they are first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ears: dict[socket.AddressFamily, socket.socket] = {}
        self._out: dict[Way, socket.socket] = {}

    def open(self, path: FlowPath) -> None:
        """Have a path's sockets.

        Raises:
            _Refused: it cannot be.
        """
        way = path.ifname, path.family
        try:
            if path.family not in self._ears:
                ears = icmp_socket(path.family, KINDS[path.family])
                self._ears[path.family] = self._stack.enter_context(ears)
            if way not in self._out:
                self._out[way] = self._stack.enter_context(_probing_socket(*way))
        except OSError as error:
            raise _Refused(f"no raw socket on {path.ifname}: {_said(error)}") from error

    def require_fit(self, path: FlowPath, size_bytes: int) -> None:
        """Have it be known beforehand that an interface takes packets of a size.

        Raises:
            _Refused: it does not.
        """
        most_bytes = mtu_bytes(self._out[path.ifname, path.family], path.ifname)
        if size_bytes > most_bytes:
            raise _Refused(f"larger than the interface's MTU, {most_bytes}")

    def send(self, probe: HopProbe) -> bool:
        """Send a packet; False if the kernel has no room for it now, which is as if it were lost.

        Raises:
            _Refused: it cannot be sent.
        """
        path = probe.path
        out = self._out[path.ifname, path.family]
        try:
            out.sendto(probe.packet, (path.destination, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM):
                return False
            if error.errno == errno.EMSGSIZE:
                self.require_fit(path, len(probe.packet))
            raise _Refused(f"cannot be sent: {_said(error)}") from error
        return True

    def hear(self) -> list[HopAnswer]:
        """Answers that have come; what is behind `MOST_PER_STEP` of a family waits, so that a flood stops nothing else."""
        found: list[HopAnswer | None] = []
        for family, ears in self._ears.items():
            for _ in range(MOST_PER_STEP):
                try:
                    data, sender = ears.recvfrom(_LONGEST)
                except OSError:
                    break
                found.append(read_icmpv4(data) if family == socket.AF_INET else read_icmpv6(data, sender[0]))
        return [answer for answer in found if answer is not None]

    def close(self) -> None:
        """Close all."""
        self._stack.close()


def _probing_socket(ifname: str, family: socket.AddressFamily) -> socket.socket:
    """One whose packets are divided by nobody, and never kept back as another of that size did not fit on the way."""
    out = sending_socket(ifname, family)
    try:
        if family == socket.AF_INET:
            out.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        else:
            out.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    except OSError:
        out.close()
        raise
    return out


def _said(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
