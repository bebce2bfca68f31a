"""Traces the paths that the manager asks for: raw sockets round a `TraceTable`, in the agent's event loop."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import math
import os
import random
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from cwdp.agent.inet import family_of
from cwdp.agent.links import LinkTable
from cwdp.agent.probing.sender import sending_socket
from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe, read_icmpv4, read_icmpv6
from cwdp.agent.tracing.sockets import icmp_socket
from cwdp.agent.tracing.table import Found, TraceTable
from cwdp.shared.bus.edges import PathStat
from cwdp.shared.bus.messages import Event, ProbeEdge, Trace, TraceOrder, TraceReport

COUNTERS = ("trace_socket_failed", "trace_orders_refused", "trace_unsent")
STEP_S = 0.02
TELL_TWICE_S = 2.0
DEAD_PROBES = 4
MOST_PATHS = 16_384
MOST_PER_WAKE = 64
TRACES_A_REPORT = 1_000

_LONGEST = 2048
_KINDS = {socket.AF_INET: (3, 11), socket.AF_INET6: (1, 3)}
"""ICMP types that are heard."""

Now = Callable[[], int]

_log = logging.getLogger("cwdp.agent")


class Tracing:
    """The traces of one host.

    Args:
        host: its name.
        ifnames: its NICs.
        links: whose addresses the probes have.
        port: UDP destination port of the probes.
        local_ns: reads the host's clock.

    Attributes:
        counters: totals by name.
    """

    def __init__(
        self, host: str, ifnames: Collection[str], links: LinkTable, port: int, local_ns: Now
    ) -> None:
        self._host, self._ifnames, self._links, self._local_ns = host, ifnames, links, local_ns
        self._table = TraceTable(port, random.Random())  # noqa: S311 - spreads rounds over time, no secret
        self.counters = self._table.counters
        self.counters.update(dict.fromkeys(COUNTERS, 0))
        self._orders: list[tuple[TraceOrder, int]] = []
        self._tell_at_s = math.inf
        self._dead: set[tuple[str, str, int, int]] = set()
        self._out: dict[tuple[str, socket.AddressFamily], socket.socket] = {}

    @property
    def changes(self) -> int:
        """Grows with every change of what is known."""
        return self._table.changes

    @property
    def known(self) -> list[Found]:
        """The hops of every path that has been traced."""
        return self._table.known

    def order(self, orders: Sequence[TraceOrder], of_tcp: Sequence[TraceOrder] = ()) -> None:
        """Keep track of these paths from now on, of RoCEv2 and of TCP."""
        wanted = [(order, 0) for order in orders] + [(order, socket.IPPROTO_TCP) for order in of_tcp]
        if wanted != self._orders:
            self._orders = wanted
            self.readdress()

    def readdress(self) -> None:
        """The host's addresses may have changed."""
        paths: dict[FlowPath, None] = {}
        switches: dict[tuple[str, str], int] = {}
        for order, protocol in self._orders:
            destination = _usual_address(order.dst_addr)
            if order.nic not in self._ifnames or destination is None:
                self.counters["trace_orders_refused"] += 1
                continue
            link = self._links.get(order.nic)
            source = link.address(family_of(destination)) if link else None
            if order.switches is not None:
                switches[order.nic, destination] = order.switches
            if source is not None:
                paths |= dict.fromkeys(
                    FlowPath(order.nic, source, destination, sport, protocol) for sport in order.sports
                )
        if len(paths) > MOST_PATHS:
            self.counters["trace_orders_refused"] += len(paths) - MOST_PATHS
        self._table.want(list(paths)[:MOST_PATHS], switches, time.monotonic())

    def hear_events(self, events: Collection[Event]) -> None:
        """The dataplane gave paths up, or uses them again."""
        pairs = {(event.nic, event.path.dst_addr) for event in events if event.nic and event.path}
        if pairs:
            self._table.suspect(pairs, time.monotonic())

    def hear_stats(self, stats: Collection[PathStat], edges: Collection[ProbeEdge]) -> None:
        """Probes of paths were all lost, or are answered again."""
        addresses = {(edge.src, edge.dst): edge.dst_addr for edge in edges}
        dead = {
            (stat.src.rpartition("/")[2], addresses[stat.src, stat.dst], stat.sport, stat.reply_sport)
            for stat in stats
            if stat.lost == stat.sent >= DEAD_PROBES and (stat.src, stat.dst) in addresses
        }
        turned = {(ifname, address) for ifname, address, *_ in dead ^ self._dead}
        self._dead = dead
        if turned:
            self._table.suspect(turned, time.monotonic())

    def tell_all(self) -> None:
        """Have everything told again, now and a moment later: whoever listens may be another one, and not listen yet."""
        self._table.tell_all()
        self._tell_at_s = time.monotonic() + TELL_TWICE_S

    def reports(self) -> Iterator[TraceReport]:
        """What is new."""
        found = self._table.take_found()
        for start in range(0, len(found), TRACES_A_REPORT):
            traces = [self._trace(one) for one in found[start : start + TRACES_A_REPORT]]
            yield TraceReport(host=self._host, traces=traces)

    async def run(self) -> None:
        """Trace until cancelled; without the sockets, which need CAP_NET_RAW, nothing is traced."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            for family in (socket.AF_INET, socket.AF_INET6):
                try:
                    ears = stack.enter_context(icmp_socket(family, _KINDS[family]))
                except OSError as error:
                    self.counters["trace_socket_failed"] += 1
                    _log.warning("cannot trace family=%s error=%s", family.name, error.strerror)
                    continue
                loop.add_reader(ears, self._hear, ears)
                stack.callback(loop.remove_reader, ears)
            while True:
                now_s = time.monotonic()
                for probe in self._table.step(now_s):
                    self._send(probe)
                if now_s >= self._tell_at_s:
                    self._tell_at_s = math.inf
                    self._table.tell_all()
                await asyncio.sleep(STEP_S)

    def _hear(self, ears: socket.socket) -> None:
        """Take in what has come; the rest at the next turn of the loop, so that a flood stops nothing else."""
        for _ in range(MOST_PER_WAKE):
            try:
                data, sender = ears.recvfrom(_LONGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                _log.debug("icmp socket error=%s", error.strerror)
                return
            answer = _read(ears.family, data, sender[0])
            if answer is None:
                self.counters["trace_answers_stray"] += 1
            else:
                self._table.hear(answer)

    def _send(self, probe: HopProbe) -> None:
        way = probe.path.ifname, probe.path.family
        try:
            if way not in self._out:
                self._out[way] = sending_socket(*way)
            self._out[way].sendto(probe.packet, (probe.path.destination, 0))
        except OSError as error:
            self.counters["trace_unsent"] += 1
            if error.errno in (errno.ENODEV, errno.ENXIO) and way in self._out:
                self._out.pop(way).close()
            _log.debug("probe not sent nic=%s error=%s", way[0], os.strerror(error.errno or 0))

    def _trace(self, found: Found) -> Trace:
        path = found.path
        return Trace(
            nic=path.ifname,
            dst_addr=path.destination,
            sport=path.sport,
            hops=list(found.hops),
            reached=found.reached,
            local_ns=self._local_ns(),
            protocol=path.protocol,
        )

    def _close(self) -> None:
        for out in self._out.values():
            out.close()
        self._out.clear()


def _read(family: int, data: bytes, sender: str) -> Answer | None:
    return read_icmpv4(data) if family == socket.AF_INET else read_icmpv6(data, sender)


def _usual_address(text: str) -> str | None:
    """An address as ICMP's senders are written here; None for what is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
