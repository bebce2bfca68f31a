"""What an agent reports of a NIC's queue pairs: what was counted, which data packets were stamped, and their bursts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from cwdp.dataplane.bursts import BurstReader
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.telemetry import QpReader, SampleReader
from cwdp.shared.bursts import BurstReport, NicBursts
from cwdp.shared.bus.messages import (
    FromAgent,
    NicQueuePairs,
    NicSamples,
    PacedQp,
    QpReport,
    SampleReport,
)
from cwdp.shared.bus.packing import row_bytes

MOST_LISTED = 4096
ROWS_PER_QP_REPORT = 2048
ROWS_PER_SAMPLE_REPORT = 16_384
MOST_BYTES = 700_000
"""Both kinds of message stay below 1 MiB, the most that nats-server takes by default."""

QUIET_NS = 900_000_000
"""So long after the last report it is told that nothing moves: each second, by a loop that comes round a little early."""

SECOND_NS = 1_000_000_000
MOST_BURSTS_PER_S = 4096
"""More than these of a NIC are not told within a second: those of the fewest bytes are left out."""

_Part = TypeVar("_Part", NicQueuePairs, NicSamples, NicBursts)


class QueuePairs:
    """Reads one interface's tables.

    Args:
        ifname: the interface.
        maps: its open maps; they stay the caller's.
        burst_gap_ms: longer gaps than this between data packets end a burst.

    Attributes:
        bursts: those of its queue pairs.
    """

    def __init__(self, ifname: str, maps: Maps, burst_gap_ms: float) -> None:
        self._ifname = ifname
        self.bursts = Bursts(ifname, maps, burst_gap_ms)
        self._qps = QpReader(maps)
        self._samples = SampleReader(maps)
        self._told_ns = -QUIET_NS

    @property
    def counters(self) -> Counter[str]:
        """Samples and bursts that came to nothing, by why."""
        samples = Counter(samples_lost=self._samples.lost, samples_unsynced=self._samples.unsynced)
        samples.update(self.bursts.counters)
        return samples

    def reports(self, local_ns: int, paced: list[PacedQp]) -> Iterator[NicQueuePairs]:
        """The queue pairs that moved since the last call, at `local_ns`, and those that are paced.

        Where none moves there is a report without any every second: a host that says nothing would say no more.
        """
        rows, moved = self._qps.read()
        if not len(rows) and local_ns - self._told_ns < QUIET_NS:
            return
        self._told_ns = local_ns
        unlisted = max(0, len(rows) - MOST_LISTED)
        if unlisted:
            rows = rows[np.argpartition(moved, unlisted)[unlisted:]]
        for start in range(0, max(len(rows), 1), ROWS_PER_QP_REPORT):
            yield NicQueuePairs(
                nic=self._ifname,
                rows=row_bytes(rows[start : start + ROWS_PER_QP_REPORT]),
                unlisted=unlisted if start == 0 else 0,
                paced=paced,
            )

    def samples(self) -> Iterator[NicSamples]:
        """The data packets stamped since the last call."""
        rows = self._samples.read()
        for start in range(0, len(rows), ROWS_PER_SAMPLE_REPORT):
            chunk = rows[start : start + ROWS_PER_SAMPLE_REPORT]
            yield NicSamples(nic=self._ifname, rows=row_bytes(chunk))


class Bursts:
    """Tells of the bursts of one interface.

    Args:
        ifname: the interface.
        maps: its open maps; they stay the caller's.
        gap_ms: longer gaps than this end a burst.
    """

    def __init__(self, ifname: str, maps: Maps, gap_ms: float) -> None:
        self._ifname, self._maps = ifname, maps
        self._reader = BurstReader(maps, gap_ms)
        self._counted_ns = -SECOND_NS
        self._room = self._unlisted = 0

    @property
    def counters(self) -> Counter[str]:
        """Bursts that came to nothing, by why."""
        return Counter(
            bursts_lost=self._reader.lost,
            bursts_unsynced=self._reader.unsynced,
            bursts_unlisted=self._unlisted,
        )

    def reports(self, local_ns: int) -> Iterator[NicBursts]:
        """The bursts that ended since the last call, at `local_ns`; also of queue pairs that have sent nothing since."""
        if local_ns - self._counted_ns >= SECOND_NS:
            self._counted_ns, self._room = local_ns, MOST_BURSTS_PER_S
        self._maps.close_bursts()
        rows = self._reader.read()
        unlisted = max(0, len(rows) - self._room)
        if unlisted:
            rows = rows[np.argsort(rows["bytes"])[unlisted:]]
            self._unlisted += unlisted
        self._room -= len(rows)
        if len(rows):
            yield NicBursts(nic=self._ifname, rows=row_bytes(rows))


def traffic_reports(
    host: str,
    now_local_ns: int,
    nics: Iterable[tuple[QueuePairs, list[PacedQp]]],
    unseen: Iterable[NicQueuePairs] = (),
) -> Iterator[tuple[str, FromAgent]]:
    """What a host reports of its traffic: the kind of each message, and the message.

    Args:
        host: its name.
        now_local_ns: what its clock shows.
        nics: the tables of each NIC, with those of its queue pairs that are paced.
        unseen: what is known of NICs that have no dataplane.
    """
    sampled: list[NicSamples] = []
    counted: list[NicQueuePairs] = []
    ended: list[NicBursts] = []
    for queue_pairs, paced in nics:
        sampled += queue_pairs.samples()
        counted += queue_pairs.reports(now_local_ns, paced)
        ended += queue_pairs.bursts.reports(now_local_ns)
    counted += unseen
    for samples in _bundled(sampled):
        yield "sample", SampleReport(host=host, nics=samples)
    for parts in _bundled(counted):
        yield "qp", QpReport(host=host, local_ns=now_local_ns, nics=parts)
    for bursts in _bundled(ended):
        yield "burst", BurstReport(host=host, nics=bursts)


def _bundled(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Parts of NICs, as many together as fit into one message."""
    bundle: list[_Part] = []
    size = 0
    for part in parts:
        if bundle and size + len(part.rows) > MOST_BYTES:
            yield bundle
            bundle, size = [], 0
        bundle.append(part)
        size += len(part.rows)
    if bundle:
        yield bundle
