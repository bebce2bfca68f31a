"""Which of some times are longer now and then, and who stood still then."""

import numpy as np
import pytest

from cwdp.shared.bus.records import BURST_ROW
from manager.jobs.flows import Flow, FlowBursts
from manager.jobs.kinds import Communicator
from manager.jobs.pauses import Pauses, now_and_then, overlap, pauses

MS = 1_000_000


def longer(*places: int, count: int = 30, by_ms: float = 50.0) -> list[int]:
    took_ns = np.full(count, 200.0 * MS)
    took_ns[list(places)] += by_ms * MS
    return [int(place) for place in now_and_then(took_ns)[1]]


def test_what_is_longer_twice_with_others_between_and_behind_is() -> None:
    assert longer(5, 11) == [5, 11]
    assert longer(5, 6, 11) == [5, 6, 11]


def test_once_or_at_the_end_or_too_often_is_not() -> None:
    assert longer(5) == longer(5, 6, 7) == longer() == []
    assert longer(5, 29) == []
    assert longer(*range(0, 26, 2)) == []
    assert longer(5, 11, by_ms=10) == []


def test_what_has_become_longer_for_good_is_not() -> None:
    assert longer(20, 21, 22, 24, 25, 26, 27, 28) == []


def test_what_is_not_known_is_not_longer() -> None:
    took_ns = np.full(30, 200.0 * MS)
    took_ns[[3, 4, 20]] = np.nan
    took_ns[[5, 11]] += 50.0 * MS
    extra_ns, places = now_and_then(took_ns)
    assert places.tolist() == [5, 11]
    assert extra_ns[[3, 4, 20]].tolist() == [0, 0, 0]


PAUSE_MS, SEND_MS = 60, 200


@pytest.mark.parametrize("computes_ms", [10, 25, 60])
def test_how_long_ranks_compute_does_not_count(computes_ms: int) -> None:
    """Two send each other; in some iterations both compute longer, in others the first stands still in the middle."""
    nics = ("a/nic0", "b/nic0")
    rng = np.random.default_rng(computes_ms)
    starts_ms, spans = [0.0], {nic: list[tuple[float, float]]() for nic in nics}
    for i in range(30):
        at = starts_ms[-1] + 300 + rng.uniform(0, computes_ms)
        end = at + SEND_MS
        for nic, behind in zip(nics, (0, 30), strict=True):
            if i in (6, 15):
                spans[nic] += [(at, at + 80 + behind), (at + 80 + behind + PAUSE_MS, end + PAUSE_MS)]
            else:
                spans[nic].append((at, end))
        starts_ms.append(end + (PAUSE_MS if i in (6, 15) else 0))
    flows = [_flow(nic, far, spans[nic]) for nic, far in (nics, nics[::-1])]
    starts_ns = (np.array(starts_ms) * MS).astype(np.int64)
    assert pauses(flows, [Communicator(nics, "pair")], starts_ns) == Pauses("a/nic0", PAUSE_MS * MS, 2, 30)
    flows[1].left["resent"][6] = 1
    assert pauses(flows, [Communicator(nics, "pair")], starts_ns) is None


def test_times_that_have_to_do_with_spans() -> None:
    spans_ns = np.array([[10, 20], [30, 40]])
    found = overlap(spans_ns, np.array([0, 0, 15, 20, 21, 25, 50]), np.array([9, 11, 16, 25, 29, 45, 60]))
    assert found.tolist() == [False, True, True, True, False, True, False]
    assert overlap(np.zeros((0, 2), np.int64), np.array([1]), np.array([2])).tolist() == [False]


def _flow(src: str, dst: str, spans_ms: list[tuple[float, float]]) -> FlowBursts:
    rows = np.zeros(len(spans_ms), BURST_ROW)
    rows["start_ns"], rows["end_ns"] = (np.array(spans_ms).T * MS).astype(np.int64)
    return FlowBursts(Flow(src, dst, 7), rows, rows)
