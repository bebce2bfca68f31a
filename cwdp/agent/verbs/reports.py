"""What an agent reports of queue pairs that the verbs shim has told of: which there are, and of which programs."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.programs.programs import program
from cwdp.agent.verbs.orders import VerbsQp
from cwdp.shared.bus.messages import ACTUATORS, Actuator
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import (
    VERBS_BY_TABLE,
    VERBS_REFUSED,
    VERBS_ROW,
    packed_address,
)
from cwdp.shared.verbs import NicVerbs, VerbsReport

LISTED_AT_ONCE = 8_192
MOST_PROGRAMS = 1_024


def verbs_reports(
    host: str,
    number: int,
    queue_pairs: Iterable[VerbsQp],
    *,
    by_tc: Collection[str],
    drains: bool,
    monotonic_ns: int,
) -> Iterator[VerbsReport]:
    """All queue pairs, in as many messages as that takes; `number` is theirs.

    Args:
        host: whose they are.
        number: of the report.
        queue_pairs: those with a NIC.
        by_tc: NICs whose queue pairs their dataplane moves.
        drains: whether those that nothing else can move are drained for it.
        monotonic_ns: now.
    """
    listed = sorted(queue_pairs, key=lambda qp: (qp.nic, qp.number))
    parts = max(1, math.ceil(len(listed) / LISTED_AT_ONCE))
    for part in range(parts):
        chosen = listed[part * LISTED_AT_ONCE : (part + 1) * LISTED_AT_ONCE]
        by_nic: defaultdict[str, list[VerbsQp]] = defaultdict(list)
        for qp in chosen:
            by_nic[qp.nic].append(qp)
        told_jobs = {qp.pid: qp.told_job for qp in chosen}
        yield VerbsReport(
            host=host,
            nics=[
                NicVerbs(
                    nic=nic, rows=row_bytes(_rows(those, nic in by_tc, drains)), alternates=_alternates(those)
                )
                for nic, those in by_nic.items()
            ],
            programs=[program(*each) for each in list(told_jobs.items())[:MOST_PROGRAMS]],
            number=number,
            part=part,
            parts=parts,
            monotonic_ns=monotonic_ns,
        )


def _rows(queue_pairs: list[VerbsQp], is_by_tc: bool, drains: bool) -> NDArray[np.void]:
    rows = np.zeros(len(queue_pairs), VERBS_ROW)
    write_addresses(rows, queue_pairs)
    rows["lqpn"], rows["pid"] = [qp.lqpn for qp in queue_pairs], [qp.pid for qp in queue_pairs]
    rows["actuator"] = [ACTUATORS.index(actuator(qp, is_by_tc=is_by_tc, drains=drains)) for qp in queue_pairs]
    rows["flags"] = [qp.by_table * VERBS_BY_TABLE | (qp.refused != 0) * VERBS_REFUSED for qp in queue_pairs]
    return rows


def _alternates(queue_pairs: list[VerbsQp]) -> bytes:
    alternates = np.array([qp.alternate for qp in queue_pairs], "<u2")
    return alternates.tobytes() if alternates.any() else b""


def write_addresses(rows: NDArray[np.void], queue_pairs: list[VerbsQp]) -> None:
    """Write down whom they go to, and by which port."""
    packed = {address: packed_address(address) for address in {qp.dst_addr for qp in queue_pairs}}
    joined = b"".join(packed[qp.dst_addr] for qp in queue_pairs)
    rows["addr"] = np.frombuffer(joined, np.uint8).reshape(-1, 16)
    rows["qpn"], rows["sport"] = [qp.qpn for qp in queue_pairs], [qp.sport or 0 for qp in queue_pairs]


def actuator(qp: VerbsQp, *, is_by_tc: bool, drains: bool) -> Actuator:
    """What moves a queue pair."""
    if is_by_tc:
        return "tc"
    return "sqd" if drains and qp.actuator == "create_only" and not qp.is_seen else qp.actuator
