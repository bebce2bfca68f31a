"""Which of some times are longer now and then, and who stood still then."""

import numpy as np
import pytest
from burst_fakes import MS, flow_bursts

from manager.jobs.bounds import Iterations
from manager.jobs.flows import Flow
from manager.jobs.kinds import Communicator
from manager.jobs.pauses import Pauses, now_and_then, overlap, pauses, resending


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
    flows = flow_bursts({Flow(nic, far, 7): spans[nic] for nic, far in (nics, nics[::-1])})
    starts_ns = (np.array(starts_ms) * MS).astype(np.int64)

    def found() -> Pauses | None:
        return pauses(Iterations(flows, starts_ns), [Communicator(nics, "pair")], resending(flows))

    assert found() == Pauses("a/nic0", PAUSE_MS * MS, 2, 30)
    flows.left.of(1).resent[6] = 1
    assert found() is None


def test_times_that_have_to_do_with_spans() -> None:
    spans_ns = np.array([[10, 20], [30, 40]])
    found = overlap(spans_ns, np.array([0, 0, 15, 20, 21, 25, 50]), np.array([9, 11, 16, 25, 29, 45, 60]))
    assert found.tolist() == [False, True, True, True, False, True, False]
    assert overlap(np.zeros((0, 2), np.int64), np.array([1]), np.array([2])).tolist() == [False]
