"""The flows of a fleet, by the bursts that both ends tell of."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, packed_address
from manager.jobs.flows import Flow
from manager.jobs.table import FlowTable, flows_of

S = 10**9
A, B, C = (packed_address(f"10.0.0.{last}") for last in (1, 2, 3))
NICS = {A: "a/nic0", B: "b/nic0", C: "c/nic0"}
A_TO_B, B_TO_A = Flow("a/nic0", "b/nic0", 7), Flow("b/nic0", "a/nic0", 8)


def rows(far: bytes, qpn: int, direction: int, begun_s: Sequence[int]) -> NDArray[np.void]:
    """Bursts that last a second each."""
    made = np.zeros(len(begun_s), BURST_ROW)
    made["addr"], made["qpn"], made["direction"] = np.frombuffer(far, np.uint8), qpn, direction
    made["start_ns"] = np.array(begun_s, np.int64) * S
    made["end_ns"], made["bytes"] = made["start_ns"] + S, made["start_ns"] // S
    return made


def told(*parts: NDArray[np.void]) -> NDArray[np.void]:
    """In another order than they began."""
    return np.random.default_rng(1).permutation(np.concatenate(parts))


def table(since_s: int = 0, **rings: NDArray[np.void]) -> FlowTable:
    return flows_of({(host, "nic0"): ring for host, ring in rings.items()}, NICS, since_s * S)


def begun_s(found: FlowTable) -> list[tuple[list[int], list[int]]]:
    """When the bursts of each flow began, as both ends tell."""
    bursts = found.of(range(len(found.flows)))
    left, arrived = (
        [(end.of(i).start_ns // S).tolist() for i in range(len(found.flows))]
        for end in (bursts.left, bursts.arrived)
    )
    return list(zip(left, arrived, strict=True))


def test_flows_are_in_order_and_their_bursts_by_their_beginning() -> None:
    found = table(
        b=told(rows(A, 7, INGRESS, [1, 5, 9]), rows(A, 8, EGRESS, [2, 6])),
        a=told(rows(B, 7, EGRESS, [1, 4, 9]), rows(B, 8, INGRESS, [2, 7])),
    )
    assert found.flows == [A_TO_B, B_TO_A]
    assert begun_s(found) == [([1, 4, 9], [1, 5, 9]), ([2, 6], [2, 7])]
    assert found.of([1, 0]).sent_bytes().tolist() == [8, 14]


def test_where_one_end_tells_of_nothing_it_is_what_the_other_one_tells() -> None:
    found = table(a=told(rows(B, 7, EGRESS, [1, 4]), rows(B, 8, INGRESS, [2])))
    assert begun_s(found) == [([1, 4], [1, 4]), ([2], [2])]


def test_a_flow_of_which_the_other_end_tells_nothing_though_it_tells_of_others_is_left_out() -> None:
    found = table(a=rows(B, 7, EGRESS, [1]), b=rows(C, 9, EGRESS, [1]), c=rows(B, 9, INGRESS, [1]))
    assert found.flows == [Flow("b/nic0", "c/nic0", 9)]


def test_what_goes_to_nobody_who_is_known_or_to_itself_is_left_out() -> None:
    assert not table(a=told(rows(bytes(16), 7, EGRESS, [1]), rows(A, 7, EGRESS, [1]))).flows
    assert not table().flows


def test_only_what_ended_since_counts() -> None:
    found = table(
        since_s=3,
        a=told(rows(B, 7, EGRESS, [1, 2, 4, 9]), rows(B, 8, INGRESS, [2, 5])),
        b=told(rows(A, 7, INGRESS, [1, 2, 4, 9]), rows(A, 8, EGRESS, [2, 5])),
    )
    assert begun_s(found) == [([2, 4, 9], [2, 4, 9]), ([2, 5], [2, 5])]
    assert found.first_ns().tolist() == [2 * S, 2 * S]
    later = found.since(8 * S)
    assert later.flows == [A_TO_B]
    assert begun_s(later) == [([9], [9])]
