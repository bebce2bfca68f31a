"""`python -m cwdp.agent.tcp.measuring`: looks at the TCP connections of named services, and tells the agent.

A process of its own: on a host of many connections the kernel takes tens of milliseconds to list them, and whose they are
takes a look at all processes. The agent (`cwdp.agent.tcp.keeper`) writes its orders to standard input, one line of JSON each,
and reads from standard output what was seen. Its end is the end of standard input.
"""

import os
import select
import sys
import time
from collections import Counter
from contextlib import suppress

from cwdp.agent.orders import Orders, Words
from cwdp.agent.programs.programs import program
from cwdp.agent.tcp import diag
from cwdp.agent.tcp.connections import Connections, Named, Told
from cwdp.agent.tcp.diag import Diag
from cwdp.agent.tcp.orders import COUNTERS, NicRows, TcpOrder, TcpWord
from cwdp.agent.tcp.owners import NamedProcesses, SocketOwners, cgroup_ids, ssh_ids
from cwdp.shared.bus.packing import row_bytes

FULL_S, CGROUPS_S, POLL_S = 5.0, 5.0, 0.5
READ_SHARE = 10
"""What is read takes a tenth of the time at most."""

MOST_PROGRAMS = 256
NICE = 5


class Measuring:
    """All that the process does, but for waiting.

    Args:
        order: what to look for.
    """

    def __init__(self, order: TcpOrder) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._order = order
        self._connections, self._owners = Connections(), SocketOwners()
        self._processes = [NamedProcesses(service.pids) for service in order.services]
        self._cgroups: list[set[int]] = []
        self._ssh: set[int] = set()
        self._cgroups_s = self._full_s = float("-inf")
        self._read_us = 0

    def follow(self, order: TcpOrder) -> None:
        """Look for this from now on."""
        if order.services != self._order.services:
            self._processes = [NamedProcesses(service.pids) for service in order.services]
        if (order.services, order.nics) != (self._order.services, self._order.nics):
            self._connections.forget()
            self._cgroups_s = self._full_s = float("-inf")
        self._order = order

    def look(self, ask: Diag) -> TcpWord:
        """What there is now."""
        began_s = time.monotonic()
        if began_s - self._cgroups_s >= CGROUPS_S:
            self._cgroups_s = began_s
            self._cgroups = [cgroup_ids(service.cgroups) for service in self._order.services]
            self._ssh = ssh_ids()
        named = self._named()
        in_full = began_s - self._full_s >= FULL_S
        sockets = self._read(ask, named)
        if sockets is None:
            return self._word(Told.nothing(), began_s, in_full=False)
        told = self._connections.take(sockets, named, self._order.nics, in_full=in_full)
        if in_full:
            self._full_s = began_s
        return self._word(told, began_s, in_full=in_full)

    def _named(self) -> Named:
        return Named(
            self._order.services,
            self._cgroups,
            [
                set().union(*(processes.sockets(pid) for pid in service.pids))
                for service, processes in zip(self._order.services, self._processes, strict=True)
            ],
            self._order.refused_ports,
            self._ssh,
        )

    def _read(self, ask: Diag, named: Named) -> diag.Sockets | None:
        """The connections that may be named, by the kernel's filter unless processes are named, whose sockets it cannot tell.

        None where the kernel refuses: nothing is known then of what has become of those that there were.
        """
        ports = [ports for service in named.services for ports in service.ports]
        cgroups = sorted(set().union(*named.cgroups))
        everything = any(service.pids for service in named.services)
        if not (self._order.nics and (everything or ports or cgroups)):
            return diag.parsed([])
        few = 2 * len(ports) + len(cgroups) <= diag.MOST_CONDITIONS
        self.counters["tcp_reads"] += 1
        began_ns = time.monotonic_ns()
        try:
            return ask.read(b"" if everything or not few else diag.condition(ports, cgroups))
        except OSError:
            self.counters["tcp_read_failed"] += 1
            return None
        finally:
            self._read_us = (time.monotonic_ns() - began_ns) // 1_000

    def _word(self, told: Told, at_s: float, *, in_full: bool) -> TcpWord:
        pids = self._owners.of(told.inodes.tolist())
        told.rows["pid"] = [pids.get(inode, 0) for inode in told.inodes.tolist()]
        known = dict.fromkeys(pid for pid in told.rows["pid"].tolist() if pid)
        self.counters["tcp_programs_unlisted"] += max(0, len(known) - MOST_PROGRAMS)
        nics = [
            NicRows(nic=nic, rows=row_bytes(told.rows[told.nic == number]), unlisted=told.unlisted[number])
            for number, nic in enumerate(self._order.nics)
        ]
        total = self.counters + self._connections.counters
        numbers = {name: total[name] for name in COUNTERS}
        numbers |= {"tcp_connections": self._connections.count, "tcp_read_us": self._read_us}
        return TcpWord(
            at_ns=round(at_s * 1e9),
            nics=[one for one in nics if one.rows or one.unlisted or in_full],
            programs=[program(pid) for pid in list(known)[:MOST_PROGRAMS]],
            in_full=in_full,
            counters=numbers,
        )


def run(orders: Orders[TcpOrder], words: Words) -> None:
    """Look until the agent is gone."""
    order = None
    with suppress(EOFError, BrokenPipeError), Diag() as ask:
        while order is None:
            select.select([orders.fileno()], [], [])
            order = orders.take()
        measuring, next_s = Measuring(order), 0.0
        while True:
            select.select([orders.fileno()], [], [], max(0.0, min(POLL_S, next_s - time.monotonic())))
            newer = orders.take()
            if newer is not None:
                order = newer
                measuring.follow(order)
            began_s = time.monotonic()
            if began_s >= next_s and words.is_free():
                words.say(measuring.look(ask))
                took_s = time.monotonic() - began_s
                next_s = began_s + max(order.interval_s, READ_SHARE * took_s)


def main() -> None:
    """Run with the agent at standard input and output."""
    os.nice(NICE)
    run(Orders(sys.stdin.fileno(), TcpOrder), Words(sys.stdout.fileno()))


if __name__ == "__main__":
    main()
