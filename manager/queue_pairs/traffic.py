"""Traffic of the fleet: what agents count of queue pairs and stamp of their packets, and of TCP connections. No I/O."""

import statistics
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bursts import BurstReport
from cwdp.shared.bus.messages import ClockLine, Hello, NicQueuePairs, QpReport, SampleReport, nic_id
from cwdp.shared.bus.packing import rows_of_each
from cwdp.shared.bus.records import BURST_ROW, DIRECTIONS, QP_ROW, SAMPLE_ROW, packed_address
from cwdp.shared.connections import TcpReport
from cwdp.shared.verbs import VerbsReport
from manager.hosts.members import Members
from manager.queue_pairs.bursts import BurstStore
from manager.queue_pairs.counters import LARGEST_BPS, NicReport, QueuePairStore
from manager.queue_pairs.delays import QpDelays
from manager.queue_pairs.verbs import VerbsStore
from manager.tcp.connections import ConnectionStore

REPORT_REASONS = ("ok", "unknown_nic", "not_sane", "implausible")
MOST_PACED = 4_096
LARGEST_TIME_NS = 2**61

_NS_PER_S = 1_000_000_000
_READINGS = 101


class _OfNic(Protocol):
    """A part of a report, about one NIC."""

    @property
    def nic(self) -> str: ...

    @property
    def rows(self) -> bytes: ...


_Part = TypeVar("_Part", bound=_OfNic)


class Traffic:
    """Queue pairs and delays of data packets.

    Attributes:
        queue_pairs: what was counted.
        delays: what came of the stamps.
        bursts: the latest.
        verbs: what the verbs shim has told of queue pairs.
        tcp: TCP connections of named services.
        reports: messages by outcome (`REPORT_REASONS`).
    """

    def __init__(self, members: Members) -> None:
        self.queue_pairs = QueuePairStore()
        self.delays = QpDelays()
        self.bursts = BurstStore()
        self.verbs = VerbsStore()
        self.tcp = ConnectionStore()
        self.reports: Counter[str] = Counter(dict.fromkeys(REPORT_REASONS, 0))
        self._members = members
        self._members_version = -1
        self._ahead_ns: deque[int] = deque(maxlen=_READINGS)
        self._median_ns: int | None = None

    def hear_queue_pairs(self, report: QpReport, now_s: float) -> None:
        """A host's queue pairs moved."""
        if not 0 <= report.local_ns < LARGEST_TIME_NS:
            return
        implausible = self.queue_pairs.implausible
        told = list(self._told(report))
        self.queue_pairs.hear([one for _, one in told], local_ns=report.local_ns, now_s=now_s)
        self.reports["implausible"] += self.queue_pairs.implausible > implausible
        for part, one in told:
            self.queue_pairs.tables[one.nic].paced_bps = _paced(part)

    def not_ready(self, now_s: float) -> dict[tuple[str, str], int]:
        """RNR NAKs of late, by the NIC that sent them and the one that they came to."""
        nics = self._members.nics_by_packed_address
        found: Counter[tuple[str, str]] = Counter()
        for name, table in self.queue_pairs.tables.items():
            for addr, count in table.rnr_naks.lately(now_s).items():
                if addr in nics:
                    found[nics[addr], nic_id(*name)] += count
        return dict(found)

    def hear_verbs(self, report: VerbsReport, now_s: float) -> None:
        """Programs of a host have told of queue pairs."""
        known = self._members.hosts.get(report.host)
        if known is not None:
            self.verbs.hear(report, _links(known.hello), now_s)

    def hear_tcp(self, report: TcpReport, now_s: float) -> None:
        """A host tells of TCP connections."""
        known = self._members.hosts.get(report.host)
        nics = [] if known is None else known.hello.nics
        self.tcp.hear(report, {nic.ifname: nic.speed_bps for nic in nics}, now_s)

    def _told(self, report: QpReport) -> Iterator[tuple[NicQueuePairs, NicReport]]:
        """The parts of a report that can be taken."""
        known = self._members.hosts.get(report.host)
        links = {} if known is None else _links(known.hello)
        for part, rows in self._each(report.nics, links, QP_ROW):
            link_bps = min(links[part.nic] or LARGEST_BPS, LARGEST_BPS)
            yield part, NicReport((report.host, part.nic), rows, part.unlisted, link_bps)

    def hear_samples(self, report: SampleReport, now_s: float) -> None:
        """Data packets passed NICs of a host."""
        now_ns = self.timeline_ns(now_s)
        for part, rows in self._each(report.nics, self._nics(report.host), SAMPLE_ROW):
            if now_ns is not None:
                self._learn_addresses()
                self.delays.hear((report.host, part.nic), rows, now_ns)

    def hear_bursts(self, report: BurstReport, now_s: float) -> None:
        """Queue pairs of a host have paused."""
        now_ns, implausible = self.timeline_ns(now_s), self.bursts.implausible
        parts, rows, counts = self._sane(report.nics, self._nics(report.host), BURST_ROW)
        if now_ns is not None and parts:
            self.bursts.hear([(report.host, part.nic) for part in parts], rows, counts, now_ns)
        self.reports["implausible"] += self.bursts.implausible > implausible

    def hear_clock(self, line: ClockLine | None, now_s: float) -> None:
        """What a host believes the timeline shows, by which this manager knows the time too."""
        if line is None or line.state not in ("synced", "holdover"):
            return
        shown_ns = line.ref_local_ns + line.offset_base_ns
        if abs(shown_ns) < LARGEST_TIME_NS:
            self._ahead_ns.append(shown_ns - round(now_s * _NS_PER_S))
            self._median_ns = None

    def timeline_ns(self, now_s: float) -> int | None:
        """The timeline now, to milliseconds: the median of what the last reports said; None before the first."""
        if not self._ahead_ns:
            return None
        if self._median_ns is None:
            self._median_ns = statistics.median_low(self._ahead_ns)
        return round(now_s * _NS_PER_S) + self._median_ns

    def join(self, now_s: float) -> None:
        """Find the data packets whose stamps have settled."""
        now_ns = self.timeline_ns(now_s)
        if now_ns is not None:
            self.delays.join(now_ns)

    def expire(self, now_s: float) -> None:
        """Let go of what is gone."""
        self.queue_pairs.expire(now_s, set(self._members.hosts))
        self.verbs.keep_only(self._members.hosts.keys())
        self.tcp.expire(now_s, self._members.hosts.keys())
        self.bursts.keep_only(self._members.hosts.keys())
        now_ns = self.timeline_ns(now_s)
        if now_ns is not None:
            self.delays.expire(now_ns)

    def _each(
        self, parts: Iterable[_Part], nics: Collection[str], dtype: np.dtype[np.void]
    ) -> Iterator[tuple[_Part, NDArray[np.void]]]:
        """Those parts of a report that can be taken, as they are about some NICs, each with its rows."""
        sane, rows, counts = self._sane(parts, nics, dtype)
        end = 0
        for part, count in zip(sane, counts, strict=True):
            these, end = slice(end, end + count), end + count
            yield part, rows[these]

    def _sane(
        self, parts: Iterable[_Part], nics: Collection[str], dtype: np.dtype[np.void]
    ) -> tuple[list[_Part], NDArray[np.void], list[int]]:
        """The same parts, their rows, one's behind another's, and how many each has; all are counted."""
        whole = []
        for part in parts:
            is_known, is_whole = part.nic in nics, not len(part.rows) % dtype.itemsize
            if is_known and is_whole:
                whole.append(part)
            else:
                self.reports["not_sane" if is_known else "unknown_nic"] += 1
        if not whole:
            return [], np.zeros(0, dtype), []
        rows, counts = rows_of_each([part.rows for part in whole], dtype)
        is_bad = rows["direction"] >= len(DIRECTIONS)
        if is_bad.any():
            of = np.repeat(np.arange(len(whole)), counts)
            has_bad = np.bincount(of[is_bad], minlength=len(whole)) > 0
            self.reports["not_sane"] += int(np.count_nonzero(has_bad))
            whole = [part for part, bad in zip(whole, has_bad.tolist(), strict=True) if not bad]
            rows, counts = rows[~has_bad[of]], counts[~has_bad]
        self.reports["ok"] += len(whole)
        return whole, rows, counts.tolist()

    def _nics(self, host: str) -> set[str]:
        """The Ethernet NICs of a host."""
        known = self._members.hosts.get(host)
        return set() if known is None else {nic.ifname for nic in known.hello.nics}

    def _learn_addresses(self) -> None:
        if self._members.version != self._members_version:
            self._members_version = self._members.version
            self.delays.know(self._members.hosts.values())


def _links(hello: Hello) -> dict[str, int | None]:
    """The speed of each NIC, ports of InfiniBand among them, in bit/s; None where it is not told."""
    return {nic.ifname: nic.speed_bps for nic in hello.nics} | {port.nic: None for port in hello.ib_ports}


def _paced(part: NicQueuePairs) -> dict[tuple[bytes, int], float]:
    """What each paced queue pair may send, by address and QPN; what is not sane is left out."""
    paced_bps = {}
    for one in part.paced[:MOST_PACED]:
        with suppress(ValueError):
            paced_bps[packed_address(one.dst_addr), one.qpn] = one.rate_bps
    return paced_bps
