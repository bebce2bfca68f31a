"""What an agent reports of queue pairs that the verbs shim has told of: which there are, and what they send."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.queuepairs import MOST_LISTED, QUIET_NS, ROWS_PER_QP_REPORT
from cwdp.agent.verbs.orders import VerbsQp
from cwdp.agent.verbs.sources import Sent, sent
from cwdp.rdma.shimwire import RTS
from cwdp.shared.bus.messages import ACTUATORS, Actuator, NicQueuePairs
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import (
    EGRESS,
    QP_ROW,
    VERBS_BY_TABLE,
    VERBS_REFUSED,
    VERBS_ROW,
    packed_address,
)
from cwdp.shared.programs import program
from cwdp.shared.verbs import NicVerbs, VerbsReport

LISTED_AT_ONCE = 8_192
MOST_PROGRAMS = 1_024


def verbs_reports(
    host: str, number: int, queue_pairs: Iterable[VerbsQp], *, by_tc: Collection[str], drains: bool
) -> Iterator[VerbsReport]:
    """All queue pairs, in as many messages as that takes; `number` is theirs.

    Args:
        host: whose they are.
        number: of the report.
        queue_pairs: those with a NIC.
        by_tc: NICs whose queue pairs their dataplane moves.
        drains: whether those that nothing else can move are drained for it.
    """
    listed = sorted(queue_pairs, key=lambda qp: (qp.nic, qp.number))
    parts = max(1, math.ceil(len(listed) / LISTED_AT_ONCE))
    for part in range(parts):
        chosen = listed[part * LISTED_AT_ONCE : (part + 1) * LISTED_AT_ONCE]
        by_nic: defaultdict[str, list[VerbsQp]] = defaultdict(list)
        for qp in chosen:
            by_nic[qp.nic].append(qp)
        pids = dict.fromkeys(qp.pid for qp in chosen)
        yield VerbsReport(
            host=host,
            nics=[
                NicVerbs(nic=nic, rows=row_bytes(_rows(those, nic in by_tc, drains)))
                for nic, those in by_nic.items()
            ],
            programs=[program(pid) for pid in list(pids)[:MOST_PROGRAMS]],
            number=number,
            part=part,
            parts=parts,
        )


class SentShares:
    """What queue pairs send where no dataplane sees them: what their NIC sends, in equal parts.

    Args:
        read: tells what a NIC has sent.
        now_ns: a steady clock.
    """

    def __init__(
        self,
        read: Callable[[str, str, int], Sent | None] = sent,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._read, self._now_ns = read, now_ns
        self._before: dict[str, Sent] = {}
        self._told_ns: dict[str, int] = {}
        self._totals: dict[int, tuple[float, float]] = {}

    def reports(
        self, queue_pairs: Iterable[VerbsQp], nics: Collection[str], ports: dict[str, tuple[str, int]]
    ) -> Iterator[NicQueuePairs]:
        """The queue pairs that can send, of the NICs that send.

        Args:
            queue_pairs: all that there are.
            nics: those without a dataplane.
            ports: the device and port of each.
        """
        by_nic: defaultdict[str, list[VerbsQp]] = defaultdict(list)
        for qp in queue_pairs:
            if qp.nic in nics and qp.state == RTS:
                by_nic[qp.nic].append(qp)
        kept = {qp.number for those in by_nic.values() for qp in those}
        self._totals = {number: total for number, total in self._totals.items() if number in kept}
        for nic, those in by_nic.items():
            is_sending = nic in ports and self._share(nic, *ports[nic], those)
            if is_sending or self._now_ns() - self._told_ns.get(nic, -QUIET_NS) >= QUIET_NS:
                self._told_ns[nic] = self._now_ns()
                yield from _listed(nic, self._rows(those) if is_sending else np.zeros(0, QP_ROW))

    def _share(self, nic: str, device: str, port: int, queue_pairs: list[VerbsQp]) -> bool:
        """Add what was sent since the last time; whether that was anything."""
        now, before = self._read(nic, device, port), self._before.get(nic)
        if now is None:
            return False
        self._before[nic] = now
        if before is None or now.bytes < before.bytes or now.packets <= before.packets:
            return False
        packets, octets = ((a - b) / len(queue_pairs) for a, b in zip(now, before, strict=True))
        for qp in queue_pairs:
            had = self._totals.get(qp.number, (0.0, 0.0))
            self._totals[qp.number] = had[0] + packets, had[1] + octets
        return True

    def _rows(self, queue_pairs: list[VerbsQp]) -> NDArray[np.void]:
        """QP_ROWs, one for each far end."""
        far_ends = list({(qp.dst_addr, qp.qpn): qp for qp in queue_pairs}.values())
        rows = np.zeros(len(far_ends), QP_ROW)
        _address(rows, far_ends)
        rows["direction"] = EGRESS
        totals = [self._totals.get(qp.number, (0.0, 0.0)) for qp in far_ends]
        rows["packets"], rows["bytes"] = np.array(totals).T.astype(np.uint64)
        return rows


def _listed(nic: str, rows: NDArray[np.void]) -> Iterator[NicQueuePairs]:
    unlisted = max(0, len(rows) - MOST_LISTED)
    rows = rows[:MOST_LISTED]
    for start in range(0, max(1, len(rows)), ROWS_PER_QP_REPORT):
        chunk = row_bytes(rows[start : start + ROWS_PER_QP_REPORT])
        yield NicQueuePairs(nic=nic, rows=chunk, unlisted=0 if start else unlisted)


def _rows(queue_pairs: list[VerbsQp], is_by_tc: bool, drains: bool) -> NDArray[np.void]:
    rows = np.zeros(len(queue_pairs), VERBS_ROW)
    _address(rows, queue_pairs)
    rows["lqpn"], rows["pid"] = [qp.lqpn for qp in queue_pairs], [qp.pid for qp in queue_pairs]
    rows["actuator"] = [ACTUATORS.index(actuator(qp, is_by_tc=is_by_tc, drains=drains)) for qp in queue_pairs]
    rows["flags"] = [qp.by_table * VERBS_BY_TABLE | (qp.refused != 0) * VERBS_REFUSED for qp in queue_pairs]
    return rows


def _address(rows: NDArray[np.void], queue_pairs: list[VerbsQp]) -> None:
    """Write down whom they go to, and by which port."""
    packed = {address: packed_address(address) for address in {qp.dst_addr for qp in queue_pairs}}
    joined = b"".join(packed[qp.dst_addr] for qp in queue_pairs)
    rows["addr"] = np.frombuffer(joined, np.uint8).reshape(-1, 16)
    rows["qpn"], rows["sport"] = [qp.qpn for qp in queue_pairs], [qp.sport or 0 for qp in queue_pairs]


def actuator(qp: VerbsQp, *, is_by_tc: bool, drains: bool) -> Actuator:
    """What moves a queue pair."""
    if is_by_tc:
        return "tc"
    return "sqd" if drains and qp.actuator == "create_only" else qp.actuator
