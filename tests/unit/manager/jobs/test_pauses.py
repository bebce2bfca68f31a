"""Which of some times are longer now and then, and who stood still then."""

import numpy as np
import pytest
from burst_fakes import MS, flow_bursts

from manager.jobs.bounds import Iterations
from manager.jobs.flows import Flow
from manager.jobs.kinds import Communicator
from manager.jobs.pauses import Pauses, is_enough, now_and_then, overlap, pauses, resending


def longer(*places: int, count: int = 30, by_ms: float = 50.0) -> list[int]:
    took_ns = np.full(count, 200.0 * MS)
    took_ns[list(places)] += by_ms * MS
    return [int(place) for place in now_and_then(took_ns)[1]]


def test_what_is_longer_with_others_behind_is() -> None:
    assert longer(5) == [5]
    assert longer(5, 6, 11) == [5, 6, 11]
    assert longer(5, 11, 28, 29) == [5, 11]


def test_what_is_hardly_longer_or_so_too_often_is_not() -> None:
    assert longer() == []
    assert longer(*range(0, 26, 2)) == []
    assert longer(5, 11, by_ms=4) == []


def test_what_is_longer_by_less_than_others_vary_is_not() -> None:
    """Ends known to a jiffy of 10 ms."""
    took_ns = 200.0 * MS + np.resize([-5.0, -3.0, 0.0, 2.0, 5.0], 30) * MS
    took_ns[[5, 11]] += 12.0 * MS
    assert now_and_then(took_ns)[1].tolist() == []
    took_ns[[5, 11]] += 30.0 * MS
    assert now_and_then(took_ns)[1].tolist() == [5, 11]


@pytest.mark.parametrize(
    ("places", "by_ms", "enough"),
    [
        ([5, 11], 25, True),
        ([5, 11], 12, False),
        ([5, 11, 20], 12, True),
        ([5, 6, 7], 50, False),
        ([5], 50, False),
        ([], 50, False),
    ],
)
def test_how_often_is_enough(places: list[int], by_ms: float, *, enough: bool) -> None:
    """Twice where it is clear, else three times, with others between."""
    assert is_enough(np.array(places, np.int64), np.full(len(places), by_ms * MS)) is enough


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


RING, CHUNK_MS, CHUNKS = tuple(f"{each}/nic0" for each in "abcd"), 40, 6


def ring(stalls: dict[int, tuple[int, int]], *, hidden: str = "", noisy: str = "") -> Pauses | None:
    """Of four in a ring, of which the third stands still in some iterations.

    Args:
        stalls: before which chunk it does, and for how many ms, by iteration.
        hidden: a NIC whose silence is too short to tell.
        noisy: a NIC that every seventh iteration is silent for 16 ms, soon after it began, for which nobody waits.
    """
    starts_ms, spans = [0.0], {nic: list[tuple[float, float]]() for nic in RING}
    for i in range(30):
        at, (chunk, stall_ms) = starts_ms[-1], stalls.get(i, (CHUNKS, 0))
        for far, nic in enumerate(RING[2:] + RING[:2]):
            over = at + CHUNK_MS * CHUNKS
            cuts = [(at + CHUNK_MS * (chunk + far), stall_ms)] if chunk + far < CHUNKS else []
            end = over + (stall_ms if cuts else 0)
            if nic == hidden:
                cuts = []
            if nic == noisy and i % 7 == 6:
                cuts.append((at + 30, 16))
            for since, silent_ms in sorted(cuts):
                spans[nic].append((at, since))
                at = since + silent_ms
            spans[nic].append((at, end))
            at = starts_ms[-1]
        starts_ms.append(at + CHUNK_MS * CHUNKS + 300 + stall_ms)
    flows = flow_bursts(
        {Flow(nic, far, 7): spans[nic] for nic, far in zip(RING, RING[1:] + RING[:1], strict=True)}
    )
    iterations = Iterations(flows, (np.array(starts_ms) * MS).astype(np.int64))
    return pauses(iterations, [Communicator(RING, "ring")], resending(flows))


def test_who_stands_still_is_silent_before_all_that_are_over_later() -> None:
    found = ring({6: (1, 12), 13: (2, 14), 20: (5, 13)})
    assert found == Pauses("c/nic0", 13 * MS, 3, 30)
    assert ring({6: (1, 12), 13: (2, 14)}) is None
    assert ring({6: (1, 30), 13: (5, 30)}) == Pauses("c/nic0", 30 * MS, 2, 30)


def test_short_silences_that_nobody_waits_for_do_not_count() -> None:
    stalls = dict.fromkeys((6, 13, 20), (2, 14))
    assert ring({}, noisy="a/nic0") is None
    for nic in RING[:2]:
        assert ring(stalls, noisy=nic) == Pauses("c/nic0", 14 * MS, 3, 30)


def test_the_next_one_is_not_named_where_who_stood_still_is_silent_for_too_short_to_tell() -> None:
    assert ring(dict.fromkeys((6, 13, 20), (1, 12)), hidden="c/nic0") is None


def test_times_that_have_to_do_with_spans() -> None:
    spans_ns = np.array([[10, 20], [30, 40]])
    found = overlap(spans_ns, np.array([0, 0, 15, 20, 21, 25, 50]), np.array([9, 11, 16, 25, 29, 45, 60]))
    assert found.tolist() == [False, True, True, True, False, True, False]
    assert overlap(np.zeros((0, 2), np.int64), np.array([1]), np.array([2])).tolist() == [False]
