"""`python -m cwdp.agent.ud.process [PATHS]`: probes from one NIC by UD queue pairs, and answers those of others.

A process of its own, since both ends' stamps are made here in user space: nothing else that the agent does may make one
late. And to learn the way to a peer the kernel waits for its next hop, up to 1 s, which must hold up nothing else. The
agent (`cwdp.agent.ud.nic`) writes its orders to standard input, one line of JSON each, and reads what became of probes
from standard output. Its end is the end of standard input.
"""

import gc
import math
import os
import random
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from cwdp.agent.clock.discipline import Clocks
from cwdp.agent.orders import Orders, Words
from cwdp.agent.ud import pairs as udpairs
from cwdp.agent.ud.orders import DownPaths, UdOrder, UdWatched, UdWord
from cwdp.agent.ud.pairs import Pairs, Turns
from cwdp.agent.ud.watch import PathWatch
from cwdp.errors import ConfigError, CwdpError
from cwdp.rdma import udprobe
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib.udlink import open_link
from cwdp.rdma.sport import SPORT_MIN
from cwdp.rdma.udprobe import Link, UdPath, UdProber, UdSample, check_path
from cwdp.rdma.udwire import UNSYNCED, UNSYNCED_BOUND_NS, Reading
from cwdp.shared import testclock
from cwdp.shared.bus.messages import ClockLine, UdAddress

COUNTERS = ("opened", "open_failed", "failed", "paths_refused", "pulses_sent", "paths_went_down")
OPEN_AGAIN_S = 1.0
CHECK_S = 1.0
SAY_S = 0.1
NS = 1e9
SILENT_S = 1.0
POLL_S = 0.02
NICE = -10
"""Not real time: others can make it busy."""

Clock = Callable[[], int]
OpenLink = Callable[[UdOrder, Clock], Link]
TellDown = Callable[[DownPaths], None]


class UdHost:
    """One NIC's queue pairs, opened anew when they fail.

    Args:
        open_link: makes the queue pairs.
        now_s: a steady clock, for intervals.
        tell_down: is told which paths of queue pairs are down, at once when that changes and each second.
    """

    def __init__(
        self,
        open_link: OpenLink,
        now_s: Callable[[], float] = time.monotonic,
        tell_down: TellDown = lambda _down: None,
    ) -> None:
        names = (*COUNTERS, *udpairs.COUNTERS, *udprobe.COUNTERS)
        self._counters: Counter[str] = Counter(dict.fromkeys(names, 0))
        self._open_link, self._now_s, self._tell_down = open_link, now_s, tell_down
        self._watch = PathWatch(random.Random())  # noqa: S311 - not a secret
        self._told_down, self._told_down_s = 0, -math.inf
        self._order: UdOrder | None = None
        self._prober: UdProber | None = None
        self._pairs = Pairs([], self._counters, self._reading)
        self._turns = Turns([], 0.0, 0.0, self._counters)
        self._trouble = ""
        self._open_at_s = self._check_at_s = self._said_s = -math.inf
        self._said_address: UdAddress | None = None

    def follow(self, order: UdOrder) -> None:
        """Have everything be as ordered."""
        before, self._order = self._order, order
        if before is None or _place(before) != _place(order):
            self._close()
            self._open_at_s = -math.inf
        elif self._prober is not None and _keys(before) != _keys(order):
            self._prober.use_keys(*_keys(order))
        if before is None or before.version != order.version:
            self._probe()
        self._watch_paths()

    def fileno(self) -> int | None:
        """Readable when something has arrived; None while there are no queue pairs."""
        return None if self._prober is None else self._prober.fileno()

    def wait_s(self) -> float:
        """How long there is nothing to do, if nothing arrives."""
        if self._prober is None:
            return POLL_S
        due_ns = self._watch.due_ns()
        due_s = [
            due for due in (self._turns.due_s(), None if due_ns is None else due_ns / NS) if due is not None
        ]
        return min(max(min(due_s) - self._now_s(), 0.0), POLL_S) if due_s else POLL_S

    def step(self) -> None:
        """Open what is not open, send what is due, take in and answer what has arrived."""
        now_s = self._now_s()
        try:
            prober = self._opened(now_s)
            if prober is None:
                return
            samples = prober.poll()
            self._pairs.take_samples(samples)
            self._pulse(prober, samples)
            for index in self._turns.take(now_s):
                self._pairs.send(prober, index)
            if now_s >= self._check_at_s:
                self._check_at_s = now_s + CHECK_S
                prober.check()
        except CwdpError as error:
            self._counters["failed" if self._prober else "open_failed"] += 1
            self._trouble = error.message
            self._close()
            self._open_at_s = now_s + OPEN_AGAIN_S

    def _watch_paths(self) -> None:
        """Watch what is ordered, but for paths that an end cannot send on."""
        order, prober = self._order, self._prober
        if order is not None and prober is not None:
            self._watch.watch([one for one in order.watched if _can_send(prober, one)], order.pace)

    def _pulse(self, prober: UdProber, samples: list[UdSample]) -> None:
        """Send the pulses that are due, and tell of paths whose silence has lasted."""
        now_ns = round(self._now_s() * NS)
        self._watch.take_samples(samples)
        for _, pulse in self._watch.take(now_ns):
            (seq,) = prober.send([pulse])
            if seq is not None:
                self._counters["pulses_sent"] += 1
                self._watch.sent(pulse, seq, round(self._now_s() * NS))
        is_news = self._watch.judge(now_ns)
        now_s, down = self._now_s(), self._watch.down
        is_news |= len(down) != self._told_down
        if self._order is not None and (is_news or (down and now_s - self._told_down_s >= SILENT_S)):
            self._counters["paths_went_down"] += max(0, len(down) - self._told_down)
            self._told_down_s, self._told_down = now_s, len(down)
            self._tell_down(DownPaths(self._order.nic, down, time.monotonic_ns() if is_news else 0))

    def word(self) -> UdWord | None:
        """What there is to be said; None for nothing yet."""
        now_s = self._now_s()
        address = None if self._prober is None else self._prober.address
        is_news = self._pairs.has_rows() or address != self._said_address
        if now_s - self._said_s < (SAY_S if is_news else SILENT_S):
            return None
        self._said_s, self._said_address = now_s, address
        return UdWord(
            address=address,
            trouble=self._trouble,
            version=0 if self._order is None else self._order.version,
            rows=self._pairs.take_rows(),
            counters=self._totals(),
        )

    def _opened(self, now_s: float) -> UdProber | None:
        """The prober; a new one when it is time for that."""
        if self._prober is None and self._order is not None and now_s >= self._open_at_s:
            clock = _clock(self._order)
            keys, send_key = _keys(self._order)
            link = self._open_link(self._order, clock)
            self._prober = UdProber(link, keys, send_key, clock, self._reading)
            self._counters["opened"] += 1
            self._trouble, self._check_at_s = "", now_s + CHECK_S
            self._probe()
            self._watch_paths()
        return self._prober

    def _probe(self) -> None:
        """Begin the schedule anew, without the paths that an end cannot send on."""
        self._pairs.abandon()
        order, prober = self._order, self._prober
        if order is None or prober is None:
            return
        paths = [UdPath(one.peer, one.sport, one.reply_sport) for one in order.paths]
        usable = {index for index, path in enumerate(paths) if _is_usable(prober, path)}
        self._counters["paths_refused"] += len(paths) - len(usable)
        turns = [index for index in order.turns if index in usable]
        rate = order.pairs_per_s * len(turns) / max(len(order.turns), 1)
        self._pairs = Pairs(paths, self._counters, self._reading)
        self._turns = Turns(turns, rate, self._now_s(), self._counters)

    def _reading(self, local_ns: int) -> Reading:
        line = None if self._order is None else self._order.line
        return UNSYNCED if line is None else read_line(line, local_ns)

    def _totals(self) -> dict[str, int]:
        total = self._counters.copy()
        if self._prober is not None:
            total.update(self._prober.counters)
        return dict(total)

    def _close(self) -> None:
        self._pairs.abandon()
        if self._prober is not None:
            self._counters.update(self._prober.counters)
            self._prober.close()
            self._prober = None


def run(orders: Orders[UdOrder], host: UdHost, words: Words) -> None:
    """Probe and answer until the agent is gone."""
    with suppress(EOFError, BrokenPipeError):
        while True:
            order = orders.take()
            if order is not None:
                host.follow(order)
            host.step()
            word = host.word() if words.is_free() else None
            if word is not None:
                words.say(word)
            link = host.fileno()
            ears = [orders.fileno(), *([] if link is None else [link])]
            select.select(ears, [], [], host.wait_s())


def read_line(line: ClockLine, local_ns: int) -> Reading:
    """How a clock stands to the timeline at a local time, by what was last known."""
    if line.state in ("unsynced", "set_aside"):
        return UNSYNCED
    age_ns = local_ns - line.ref_local_ns
    offset_ns = line.offset_base_ns + round(line.offset_ns + line.drift * age_ns)
    bound_ns = math.ceil(line.bound_ns + line.bound_drift * abs(age_ns))
    return Reading(offset_ns, min(bound_ns, UNSYNCED_BOUND_NS - 1))


def _place(order: UdOrder) -> tuple[str, int, int, int | None, str | None]:
    return order.device, order.port, order.gid_index, order.ahead_of_raw_ns, order.test_clock


def _keys(order: UdOrder) -> tuple[dict[int, bytes], int]:
    return {number: bytes.fromhex(secret) for number, secret in order.keys.items()}, order.send_key


def _can_send(prober: UdProber, watched: UdWatched) -> bool:
    """Whether a path can be pulsed from here, whatever the way back."""
    back = watched.peer.sports[0] if watched.peer.sports else SPORT_MIN
    return _is_usable(prober, UdPath(watched.peer, watched.sport, back))


def _is_usable(prober: UdProber, path: UdPath) -> bool:
    try:
        gid_bytes(path.peer.gid)
        check_path(prober.address, path)
    except (ConfigError, ValueError):
        return False
    return True


def _clock(order: UdOrder) -> Clock:
    """Local time, which all of this host's probes are stamped with."""
    test = None if order.test_clock is None else testclock.load(Path(order.test_clock))
    clocks, ahead_ns = Clocks(test), order.ahead_of_raw_ns
    return clocks.mono_ns if ahead_ns is None else lambda: clocks.raw_ns() + ahead_ns


def _open_link(order: UdOrder, clock: Clock) -> Link:
    return open_link(order.device, order.port, order.gid_index, order.driver, clock)


def _telling(number: str) -> TellDown:
    """Tells by a datagram socket that is inherited; what it has no room for comes again within a second."""
    sock = socket.socket(fileno=int(number))

    def tell(down: DownPaths) -> None:
        with suppress(OSError):
            sock.send(msgspec.json.encode(down), socket.MSG_DONTWAIT)

    return tell


def main() -> None:
    """Run with the orders of standard input; the command line may name the socket by which paths are told of."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    gc.disable()  # nothing here makes cycles
    host = UdHost(_open_link, tell_down=_telling(sys.argv[1])) if len(sys.argv) > 1 else UdHost(_open_link)
    run(Orders(sys.stdin.fileno(), UdOrder), host, Words(sys.stdout.fileno()))


if __name__ == "__main__":
    main()
