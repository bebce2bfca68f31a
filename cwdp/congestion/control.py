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
from cwdp.dataplane.maps import Maps
from cwdp.dataplane.steering import words_address

LOOK_NS = 100_000_000
"""How often the whole table is looked through for queue pairs that have begun to send."""

KEPT_NS = 1_000_000_000
"""A queue pair that was busy is followed for so long after."""

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
        self._looked_ns = self._stepped_ns = 0
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        pacer.release_all()

    @property
    def following(self) -> bool:
        """Whether there are queue pairs that may have to be held back."""
        return len(self._followed) > 0

    def step(self, now_ns: int) -> list[Held]:
        """Read, judge, and set the rates; what is held back now.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._look(now_ns)
        news_ns = self._read_signal(now_ns)
        elapsed_s = (now_ns - self._stepped_ns) * 1e-9
        self._stepped_ns = now_ns
        if not self.following:
            return []
        seen = self._seen(news_ns[self._followed["path"]], elapsed_s)
        law.step(self._flows, seen, now_ns, elapsed_s, self._threshold_ns)
        self._pacer.hold(self._followed["row"], self._flows["rate_bps"], now_ns)
        self.counters["congestion_changes_refused"] = self._pacer.failed
        return self._held()

    def close(self) -> None:
        """Hold nothing back any more."""
        self._pacer.release_all()

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

    def _read_signal(self, now_ns: int) -> NDArray[np.float64]:
        """Queueing delay of each path that was heard of since the last call, else NaN; shape (PATHS,)."""
        answered = self._pulses.take(now_ns)
        delays, unsynced = path_delays(answered, WIDEST_BOUND * self._threshold_ns)
        self.counters["congestion_signals"] += len(answered) - unsynced
        self.counters["congestion_signals_unsynced"] += unsynced
        news_ns = np.full(abi.PATHS, np.nan)
        news_ns[delays.path] = self._bases.queue_ns(delays, now_ns)
        self._queue_ns[delays.path] = news_ns[delays.path]
        return news_ns

    def _seen(self, queue_ns: NDArray[np.float64], elapsed_s: float) -> law.Seen:
        rows = self._followed["row"]
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

    def _held(self) -> list[Held]:
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
