"""What an agent reports of a NIC's queue pairs: what was counted, and which data packets were stamped."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.telemetry import QpReader, SampleReader
from cwdp.shared.bus.messages import PacedQp, QpReport, SampleReport

MOST_LISTED = 4096
ROWS_PER_QP_REPORT = 2048
ROWS_PER_SAMPLE_REPORT = 16_384
"""Both kinds of message stay below 1 MiB, the most that nats-server takes by default."""

QUIET_NS = 1_000_000_000
"""So long after the last report it is told that nothing moves."""


class QueuePairs:
    """Reads one interface's tables.

    Args:
        host: this host's name.
        ifname: the interface.
        maps: its open maps; they stay the caller's.
    """

    def __init__(self, host: str, ifname: str, maps: Maps) -> None:
        self._host, self._ifname = host, ifname
        self._qps = QpReader(maps)
        self._samples = SampleReader(maps)
        self._told_ns = -QUIET_NS

    @property
    def counters(self) -> Counter[str]:
        """Samples that came to nothing, by why."""
        return Counter(samples_lost=self._samples.lost, samples_unsynced=self._samples.unsynced)

    def reports(self, local_ns: int, paced: list[PacedQp]) -> Iterator[QpReport]:
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
            yield QpReport(
                host=self._host,
                nic=self._ifname,
                local_ns=local_ns,
                rows=rows[start : start + ROWS_PER_QP_REPORT].tobytes(),
                unlisted=unlisted if start == 0 else 0,
                paced=paced,
            )

    def samples(self) -> Iterator[SampleReport]:
        """The data packets stamped since the last call."""
        rows = self._samples.read()
        for start in range(0, len(rows), ROWS_PER_SAMPLE_REPORT):
            chunk = rows[start : start + ROWS_PER_SAMPLE_REPORT]
            yield SampleReport(host=self._host, nic=self._ifname, rows=chunk.tobytes())
