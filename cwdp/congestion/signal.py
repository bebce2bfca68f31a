"""The signal: the delay that queues add on each watched path, from the pulses that have been answered.

Pulses are stamped at tc egress and pass what waits in this host's own qdisc, so what is seen is the fabric's. Only the
way there counts: answers may wait on their way back without anybody's rate being to blame.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import SlotState

LOOK_AHEAD = abi.PATHS
"""Numbers that may have been passed over in a row: the kernel may take no pulse of a round."""

GIVEN_UP_NS = 200_000_000
LOST_TRACK_NS = 500_000_000
BASE_RISE = 1e-6
"""ns per ns: how fast the least delay of a path is forgotten, as routes change."""

WIDEST_BOUND = 0.5
"""Of the threshold: a clock less certain than that says nothing about queues."""

_SEQ_SHIFT = np.uint64(32)
_SEQ_MASK = 0xFFFFFFFF
_STATE_MASK = np.uint64(0xFFFFFFFF)


class Tables(Protocol):
    """What is read of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    slots: NDArray[np.void]


ANSWER = np.dtype([("path", np.intp), ("fwd_owd_ns", "i8"), ("rev_owd_ns", "i8"), ("bound_ns", "u4")])
"""What is of use of a slot."""


class PulseReader:
    """Finds the pulses that were answered since the last call.

    Their numbers go up by one from pulse to pulse, in a ring of slots; nothing else says which is the latest.
    """

    def __init__(self, tables: Tables) -> None:
        self._slots = tables.slots[abi.SLOTS : abi.SLOTS + abi.PULSE_SLOTS]
        self._head: int | None = None
        self._moved_ns = 0
        self._waiting = np.zeros(0, dtype=np.uint64)
        self._since_ns = np.zeros(0, dtype=np.int64)

    def take(self, now_ns: int) -> NDArray[np.void]:
        """Pulses that have been answered; dtype ANSWER, shape (n,).

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        if self._head is None or now_ns - self._moved_ns > LOST_TRACK_NS:
            self._find_head(now_ns)
        self._follow(now_ns)
        places = self._waiting.astype(np.intp) % abi.PULSE_SLOTS
        tags = self._slots["tag"][places]
        ours = tags >> _SEQ_SHIFT == self._waiting
        done = ours & (tags & _STATE_MASK == SlotState.DONE)
        left = ours & ~done & (now_ns - self._since_ns < GIVEN_UP_NS)
        self._waiting, self._since_ns = self._waiting[left], self._since_ns[left]
        answered = np.zeros(np.count_nonzero(done), dtype=ANSWER)
        for name in ANSWER.names or ():
            answered[name] = self._slots[name][places[done]]
        return answered

    def _find_head(self, now_ns: int) -> None:
        """The pulse that left last; those before it are passed over."""
        tags = self._slots["tag"].copy()
        sent = np.where(tags & _STATE_MASK == SlotState.FREE, 0, self._slots["t1"])
        last = int(sent.argmax())
        self._head = int(tags[last] >> _SEQ_SHIFT) if sent[last] else None
        self._moved_ns = now_ns

    def _follow(self, now_ns: int) -> None:
        """Take up the pulses that have left since."""
        while self._head is not None:
            sent = self._sent_after(self._head)
            if not len(sent):
                return
            self._head, self._moved_ns = int(sent[-1]), now_ns
            self._waiting = np.concatenate((self._waiting, sent))
            self._since_ns = np.concatenate((self._since_ns, np.full(len(sent), now_ns)))

    def _sent_after(self, head: int) -> NDArray[np.uint64]:
        """Those of the next numbers that have been sent, in order."""
        ahead = np.arange(head + 1, head + 1 + LOOK_AHEAD, dtype=np.uint64) & np.uint64(_SEQ_MASK)
        tags = self._slots["tag"][ahead.astype(np.intp) % abi.PULSE_SLOTS]
        sent: NDArray[np.uint64] = ahead[tags >> _SEQ_SHIFT == ahead]
        return sent


@dataclass(frozen=True)
class Delays:
    """One-way delays of paths that were heard of; every array has the shape (paths,).

    Attributes:
        path: numbers of the paths.
        owd_ns: the mean on the way there.
        least_ns: the least, there or back.
    """

    path: NDArray[np.intp]
    owd_ns: NDArray[np.float64]
    least_ns: NDArray[np.float64]


def path_delays(answers: NDArray[np.void], widest_bound_ns: float) -> tuple[Delays, int]:
    """The delays of each path, and how many pulses say nothing since the clocks are too uncertain."""
    usable = answers["bound_ns"] <= widest_bound_ns
    there, back = answers["fwd_owd_ns"][usable], answers["rev_owd_ns"][usable]
    of = answers["path"][usable]
    counts = np.bincount(of)
    path = np.flatnonzero(counts)
    least_ns = np.full(len(counts), np.inf)
    np.minimum.at(least_ns, of, np.minimum(there, back))
    delays = Delays(path, np.bincount(of, there)[path] / counts[path], least_ns[path])
    return delays, len(answers) - len(of)


class Bases:
    """The least delay of each path, which is not queueing.

    It may be full from its first pulse on. Then the way back, which is as long and not full as well as a rule, says
    what the way there would take; both are on one timeline.
    """

    def __init__(self) -> None:
        self._base_ns = np.full(abi.PATHS, np.nan)
        self._learnt_ns = np.zeros(abi.PATHS, dtype=np.int64)

    def forget(self, paths: NDArray[np.intp]) -> None:
        """These numbers stand for other paths now."""
        self._base_ns[paths] = np.nan

    def queue_ns(self, delays: Delays, now_ns: int) -> NDArray[np.float64]:
        """What queues add to each delay, shape (paths,); the bases are learnt from it.

        Args:
            delays: of the paths that were heard of.
            now_ns: CLOCK_MONOTONIC.
        """
        grown_ns = BASE_RISE * (now_ns - self._learnt_ns[delays.path])
        base_ns = np.fmin(self._base_ns[delays.path] + grown_ns, delays.least_ns)
        self._base_ns[delays.path], self._learnt_ns[delays.path] = base_ns, now_ns
        queue_ns: NDArray[np.float64] = delays.owd_ns - base_ns
        return queue_ns
