"""The loop of one interface: which queue pairs are busy, what waits on their paths, what they may send."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cwdp.congestion import law
from cwdp.congestion.busy import BusyReader
from cwdp.congestion.episodes import Held
from cwdp.congestion.marks import MarkReader
from cwdp.congestion.pacing import Pacer
from cwdp.congestion.signal import WIDEST_BOUND, Bases, PulseReader, path_delays
from cwdp.congestion.watch import PathWatch
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.pinned.maps import Maps

LOOK_NS = 100_000_000
"""How often the whole table is looked through for queue pairs that have begun to send."""

KEPT_NS = 1_000_000_000
"""A queue pair that was busy is followed for so long after."""

QUIET_NS = 100_000_000
"""How often rates are judged where nothing is heard."""

FLOOR_S = 0.04
"""In this time a queue pair may always send a packet: htb has it wait for as long as its last packet took at the rate of
then, whatever the rate is now."""

COUNTERS = (
    "congestion_signals",
    "congestion_signals_unsynced",
    "congestion_unpaceable",
    "congestion_paths_refused",
    "congestion_changes_refused",
)

_FOLLOWED = np.dtype([("row", np.intp), ("tag", "u8"), ("path", np.intp), ("busy_ns", "i8"), ("sent", "u8")])


class NicControl:
    """Congestion control on one interface. Whatever was held back before it began is let go.

    Args:
        maps: its open maps; they stay the caller's.
        pacer: gives its queue pairs their rates; it stays the caller's.
        threshold_ns: queueing delay from which on queue pairs are held back.
        frame_bytes: the longest packet that is sent.

    Attributes:
        counters: totals by name (`COUNTERS`).
    """

    def __init__(self, maps: Maps, pacer: Pacer, threshold_ns: float, frame_bytes: int) -> None:
        self._pairs = maps.qps[Direction.EGRESS]
        self._pacer, self._threshold_ns = pacer, threshold_ns
        self._floor_bps = frame_bytes * 8 / FLOOR_S
        self._busy, self._watch = BusyReader(maps), PathWatch(maps)
        self._pulses, self._bases, self._marks = PulseReader(maps), Bases(), MarkReader(maps)
        self._followed = np.zeros(0, dtype=_FOLLOWED)
        self._flows = law.new_flows(0, 0)
        self._queue_ns = np.full(abi.PATHS, np.nan)
        self._is_news = np.zeros(abi.PATHS, dtype=bool)
        self._looked_ns = self._judged_ns = 0
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        pacer.release_all()

    @property
    def following(self) -> bool:
        """Whether there are queue pairs that may have to be held back."""
        return len(self._followed) > 0

    def step(self, now_ns: int) -> None:
        """Read, judge, and set the rates.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._look(now_ns)
        answers = self._pulses.take(now_ns)
        if len(answers):
            self._learn(answers, now_ns)
        if len(answers) or now_ns - self._judged_ns > QUIET_NS:
            self._judge(now_ns)

    def held(self) -> list[Held]:
        """What is held back now."""
        held = np.flatnonzero(self._flows["paced"])
        rows, keys = self._followed["row"][held], self._pairs["key"]
        queue_ns = np.nan_to_num(self._queue_ns[self._followed["path"][held]])
        return [
            Held(str(words_address(address)), qpn, rate, queue)
            for address, qpn, rate, queue in zip(
                keys["addr"][rows],
                keys["qpn"][rows].tolist(),
                self._flows["rate_bps"][held].tolist(),
                queue_ns.tolist(),
                strict=True,
            )
        ]

    def close(self) -> None:
        """Hold nothing back any more."""
        self._pacer.release_all()

    def _judge(self, now_ns: int) -> None:
        """Move the rates on."""
        elapsed_s = (now_ns - self._judged_ns) * 1e-9
        self._judged_ns = now_ns
        if self.following:
            law.step(self._flows, self._seen(elapsed_s), now_ns, elapsed_s, self._threshold_ns)
        self._pacer.hold(self._followed["row"], self._flows["rate_bps"], now_ns)
        self.counters["congestion_changes_refused"] = self._pacer.failed

    def _look(self, now_ns: int) -> None:
        """Choose the queue pairs to follow, and find their paths."""
        self._marks.look()
        rows, rates_bps = self._busy.busy(now_ns, self._pacer.link_bps)
        can = self._pacer.can_hold(rows)
        self.counters["congestion_unpaceable"] += int(np.count_nonzero(~can))
        self._forget(now_ns)
        self._take_up(rows[can], rates_bps[can], now_ns)
        self._followed["path"], changed = self._watch.find(self._followed["row"], now_ns)
        self._bases.forget(changed)
        self.counters["congestion_paths_refused"] = self._watch.refused

    def _forget(self, now_ns: int) -> None:
        """Drop those that rest and are not held back, and those whose rows are others' now."""
        followed = self._followed
        same = self._busy.sent(followed["row"]).tags == followed["tag"]
        busy = now_ns - followed["busy_ns"] < KEPT_NS
        left = same & (busy | self._flows["paced"]) & self._pacer.can_hold(followed["row"])
        self._followed, self._flows = followed[left], self._flows[left]

    def _take_up(self, rows: NDArray[np.intp], rates_bps: NDArray[np.float64], now_ns: int) -> None:
        """Follow these, from now on if they are new."""
        self._followed["busy_ns"][np.isin(self._followed["row"], rows)] = now_ns
        new = ~np.isin(rows, self._followed["row"])
        sent = self._busy.sent(rows[new])
        begun = np.zeros(len(sent.tags), dtype=_FOLLOWED)
        begun["row"], begun["tag"], begun["sent"] = rows[new], sent.tags, sent.frame_bytes
        begun["busy_ns"] = now_ns
        flows = law.new_flows(len(begun), now_ns)
        flows["sent_bps"] = rates_bps[new]
        self._followed = np.concatenate((self._followed, begun))
        self._flows = np.concatenate((self._flows, flows))

    def _learn(self, answers: NDArray[np.void], now_ns: int) -> None:
        """Take in what pulses say of their paths."""
        delays, unsynced = path_delays(answers, WIDEST_BOUND * self._threshold_ns)
        self.counters["congestion_signals"] += len(answers) - unsynced
        self.counters["congestion_signals_unsynced"] += unsynced
        self._queue_ns[delays.path] = self._bases.queue_ns(delays, now_ns)
        self._is_news[delays.path] = True

    def _seen(self, elapsed_s: float) -> law.Seen:
        rows, paths = self._followed["row"], self._followed["path"]
        queue_ns = np.where(self._is_news[paths], self._queue_ns[paths], np.nan)
        self._is_news[:] = False
        sent = self._busy.sent(rows).frame_bytes
        moved_bytes = (sent - self._followed["sent"]).astype(np.float64)
        self._followed["sent"] = sent
        ceiling_bps = self._pacer.ceilings_bps(rows)
        return law.Seen(
            queue_ns=queue_ns,
            marked=self._marks.marked(self._pairs["key"]["addr"][rows]),
            sent_bps=moved_bytes * 8 / elapsed_s,
            ceiling_bps=ceiling_bps,
            floor_bps=np.minimum(self._floor_bps, ceiling_bps),
        )
