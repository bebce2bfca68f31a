"""RNR NAKs that came of late, by who sent them."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import EGRESS, INGRESS, NAK_KINDS, QP_ROW, packed_address
from manager.hosts.members import Members
from manager.queue_pairs.counters import NicReport
from manager.queue_pairs.not_ready import LATELY_S
from manager.queue_pairs.traffic import Traffic

S = 10**9
RNR, SEQUENCE = (NAK_KINDS.index(kind) for kind in ("rnr", "psn_sequence"))
NICS = {packed_address(f"10.0.0.{i}"): f"h{i}/eth0" for i in (1, 2, 3)}


def rows(*told: tuple[int, int, int, int]) -> NDArray[np.void]:
    """Of a far host, in a direction, so many NAKs of a kind."""
    found = np.zeros(len(told), QP_ROW)
    for row, (far, direction, kind, count) in zip(found, told, strict=True):
        row["addr"] = np.frombuffer(packed_address(f"10.0.0.{far}"), np.uint8)
        row["qpn"], row["direction"], row["packets"] = 7, direction, 1_000
        row["naks"][kind] = count
    return found


def hear(traffic: Traffic, second: float, *told: tuple[int, int, int, int]) -> None:
    reports = [NicReport(("h1", "eth0"), rows(*told))]
    traffic.queue_pairs.hear(reports, local_ns=round(second * S), now_s=second)


def watched() -> Traffic:
    members: Any = SimpleNamespace(nics_by_packed_address=NICS)
    return Traffic(cast(Members, members))


def test_they_are_counted_from_one_report_to_the_next() -> None:
    traffic = watched()
    hear(traffic, 10.0, (2, INGRESS, RNR, 100), (3, INGRESS, RNR, 5))
    assert traffic.not_ready(10.0) == {}
    hear(traffic, 11.0, (2, INGRESS, RNR, 104), (3, INGRESS, RNR, 5))
    hear(traffic, 12.0, (2, INGRESS, RNR, 105), (3, INGRESS, RNR, 6))
    assert traffic.not_ready(12.0) == {("h2/eth0", "h1/eth0"): 5, ("h3/eth0", "h1/eth0"): 1}


def test_those_of_long_ago_do_not_count() -> None:
    traffic = watched()
    for second, count in ((10.0, 0), (11.0, 4), (15.0, 5)):
        hear(traffic, second, (2, INGRESS, RNR, count))
    assert traffic.not_ready(12.0 + LATELY_S) == {("h2/eth0", "h1/eth0"): 1}
    assert traffic.not_ready(15.0 + LATELY_S) == {}


def test_others_and_those_that_leave_are_none() -> None:
    traffic = watched()
    hear(traffic, 10.0, (2, INGRESS, SEQUENCE, 0), (3, EGRESS, RNR, 0))
    hear(traffic, 11.0, (2, INGRESS, SEQUENCE, 9), (3, EGRESS, RNR, 9))
    assert traffic.not_ready(11.0) == {}
