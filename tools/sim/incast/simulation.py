"""An incast, packet by packet: senders with windows, pacing, one queue, pulses that tell its delay, and a control law.

Each sender is a host of its own with one flow. The queue is first in, first out, and drops what does not fit. What is
sent waits in its host until the pacing allows it; as with htb, a change of the rate counts from the next packet on.
Everything that tells the law something is late and noisy: pulses fly every so often, answers queue on their way, steps
have jitter, and now and then the process stalls.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FRAME_BYTES, PULSE_BYTES = 4_158, 122
ACK_DELAY_NS = 40_000
NOISE_NS = 20_000
ANSWER_NS = 60_000
TIMEOUT_NS = 67_000_000
STALL_NS = 30_000_000
JITTER = 0.1
NS_PER_S = 1_000_000_000


class Law(Protocol):
    """Sets the rate of one sender."""

    def step(self, now_ns: int, queue_ns: Sequence[float], sent_bps: float, elapsed_s: float) -> float:
        """The rate from now on, bit/s, given the delays told since the last step and what was sent meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Incast:
    """What is simulated; times in seconds.

    Attributes:
        windows: packets under way, of each sender.
        starts, stops: when each sender sends; everybody all the time if not given.
        pulse_s, step_s: between two pulses and two steps of a sender.
        stalls: share of steps after which the process stalls.
    """

    senders: int = 7
    seconds: float = 10.0
    link_bps: float = 100e6
    queue_bytes: int = 256 * 1024
    windows: Sequence[int] = ()
    starts: Sequence[float] = ()
    stops: Sequence[float] = ()
    pulse_s: float = 0.01
    step_s: float = 0.01
    stalls: float = 0.01


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        sent_ns, owd_ns: of every packet that was not dropped, shape (packets,).
        delivered_bytes: by sender and tenth of a second, shape (senders, bins).
        dropped: packets.
    """

    sent_ns: NDArray[np.int64]
    owd_ns: NDArray[np.int64]
    delivered_bytes: NDArray[np.float64]
    dropped: int

    def goodput_bps(self, start_s: float, stop_s: float) -> NDArray[np.float64]:
        """What each sender got through in a span; shape (senders,)."""
        bins = self.delivered_bytes[:, round(start_s * 10) : round(stop_s * 10)]
        goodput: NDArray[np.float64] = bins.sum(axis=1) * 8 / (stop_s - start_s)
        return goodput

    def owd_quantile_ns(self, share: float, start_s: float = 0.0) -> float:
        """Of the packets sent since then."""
        return float(np.quantile(self.owd_ns[self.sent_ns >= start_s * NS_PER_S], share))


class _Kind(IntEnum):
    SEND, ACKNOWLEDGE, PULSE, ANSWER, STEP = range(5)


@dataclass
class _Sender:
    law: Law
    window: int
    start_ns: int
    stop_ns: int
    rate_bps: float
    under_way: int = 0
    allowed_ns: int = 0
    is_due: bool = True
    told_ns: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    stepped_ns: int = 0


class Simulation:
    """One run.

    Args:
        incast: what is simulated.
        make_law: makes a sender's law, given the rate of its link.
        seed: of all randomness.
    """

    def __init__(self, incast: Incast, make_law: Callable[[float], Law], seed: int) -> None:
        self._incast, self._rng = incast, np.random.default_rng(seed)
        n = incast.senders
        windows = incast.windows or [max(4, 64 // n)] * n
        starts, stops = incast.starts or [0.0] * n, incast.stops or [incast.seconds] * n
        self._senders = [
            _Sender(
                make_law(incast.link_bps), window, round(a * NS_PER_S), round(b * NS_PER_S), incast.link_bps
            )
            for window, a, b in zip(windows, starts, stops, strict=True)
        ]
        self._free_ns = 0
        self._events: list[tuple[int, int, _Kind, int, float]] = []
        self._count = 0
        self._packets: list[tuple[int, int]] = []
        self._delivered = np.zeros((n, int(incast.seconds * 10) + 1))
        self._dropped = 0

    def run(self) -> Outcome:
        """Run to the end."""
        for number, sender in enumerate(self._senders):
            self._push(sender.start_ns + int(self._rng.integers(1_000_000)), _Kind.SEND, number)
            self._push(self._some(self._incast.pulse_s), _Kind.PULSE, number)
            self._push(self._some(self._incast.step_s), _Kind.STEP, number)
        end_ns = round(self._incast.seconds * NS_PER_S)
        handlers = (self._send, self._acknowledge, self._pulse, self._answer, self._step)
        while self._events and self._events[0][0] < end_ns:
            now_ns, _, kind, number, value = heapq.heappop(self._events)
            handlers[kind](now_ns, number, value)
        packets = np.array(self._packets, dtype=np.int64).reshape(-1, 2)
        return Outcome(packets[:, 0], packets[:, 1], self._delivered, self._dropped)

    def _push(self, when_ns: float, kind: _Kind, number: int, value: float = 0.0) -> None:
        self._count += 1
        heapq.heappush(self._events, (int(when_ns), self._count, kind, number, value))

    def _some(self, interval_s: float) -> int:
        return int(self._rng.integers(round(interval_s * NS_PER_S)))

    def _send(self, now_ns: int, number: int, _: float) -> None:
        sender = self._senders[number]
        sender.is_due = False
        if now_ns >= sender.stop_ns or sender.under_way >= sender.window:
            return
        if now_ns >= sender.allowed_ns:
            sender.allowed_ns = now_ns + round(FRAME_BYTES * 8e9 / sender.rate_bps)
            sender.under_way += 1
            sender.sent_bytes += FRAME_BYTES
            self._enqueue(now_ns, number)
        self._wake(sender.allowed_ns, number)

    def _wake(self, when_ns: int, number: int) -> None:
        sender = self._senders[number]
        if not sender.is_due:
            sender.is_due = True
            self._push(max(when_ns, sender.allowed_ns), _Kind.SEND, number)

    def _enqueue(self, now_ns: int, number: int) -> None:
        if max(0, self._free_ns - now_ns) * self._incast.link_bps / 8e9 > self._incast.queue_bytes:
            self._dropped += 1
            self._push(now_ns + TIMEOUT_NS, _Kind.ACKNOWLEDGE, number, 0.0)
            return
        self._free_ns = max(self._free_ns, now_ns) + round(FRAME_BYTES * 8e9 / self._incast.link_bps)
        self._packets.append((now_ns, self._free_ns - now_ns))
        late_ns = ACK_DELAY_NS + self._rng.exponential(NOISE_NS)
        self._push(self._free_ns + late_ns, _Kind.ACKNOWLEDGE, number, FRAME_BYTES)

    def _acknowledge(self, now_ns: int, number: int, delivered_bytes: float) -> None:
        self._senders[number].under_way -= 1
        self._delivered[number, now_ns * 10 // NS_PER_S] += delivered_bytes
        self._wake(now_ns, number)

    def _pulse(self, now_ns: int, number: int, _: float) -> None:
        sender = self._senders[number]
        if sender.start_ns <= now_ns < sender.stop_ns:
            queue_ns = max(0, self._free_ns - now_ns)
            self._free_ns = max(self._free_ns, now_ns) + round(PULSE_BYTES * 8e9 / self._incast.link_bps)
            seen_ns = queue_ns + self._rng.exponential(NOISE_NS)
            self._push(
                now_ns + queue_ns + ANSWER_NS + self._rng.exponential(NOISE_NS), _Kind.ANSWER, number, seen_ns
            )
        self._push(now_ns + self._jittered(self._incast.pulse_s), _Kind.PULSE, number)

    def _answer(self, _: int, number: int, queue_ns: float) -> None:
        self._senders[number].told_ns.append(queue_ns)

    def _step(self, now_ns: int, number: int, _: float) -> None:
        sender = self._senders[number]
        elapsed_s = (now_ns - sender.stepped_ns) / NS_PER_S
        if sender.start_ns <= now_ns:
            sent_bps = sender.sent_bytes * 8 / elapsed_s
            sender.rate_bps = sender.law.step(now_ns, sender.told_ns, sent_bps, elapsed_s)
            sender.told_ns, sender.sent_bytes = [], 0
        sender.stepped_ns = now_ns
        stalled_ns = self._rng.exponential(STALL_NS) if self._rng.random() < self._incast.stalls else 0.0
        self._push(now_ns + self._jittered(self._incast.step_s) + stalled_ns, _Kind.STEP, number)

    def _jittered(self, interval_s: float) -> float:
        return float(interval_s * NS_PER_S * self._rng.uniform(1 - JITTER, 1 + JITTER))
