"""The rivals decide as their papers say, on delays that are made up."""

import numpy as np
import pytest

from tools.experiments.contention.rivals import Chooser
from tools.experiments.contention.rivals.hopper import CHOICES, LEAST_ROUNDS, Hopper
from tools.experiments.contention.rivals.plb import REHASH_ROUNDS, Plb

BASE_NS = 1000.0
OWN = 50_000
FAST, SLOW = np.full(2, 0.5 * BASE_NS), np.full(2, 10 * BASE_NS)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_plb_stays_where_nothing_queues_or_nothing_is_heard() -> None:
    plb = Plb(OWN, BASE_NS, rng())
    for _ in range(100):
        assert plb.step({OWN: FAST}).sport == OWN
        assert plb.step({}).sport == OWN


def test_plb_leaves_after_so_many_congested_rounds_in_a_row() -> None:
    plb = Plb(OWN, BASE_NS, rng())
    for _ in range(REHASH_ROUNDS - 1):
        assert plb.step({OWN: SLOW}).sport == OWN
    assert plb.step({OWN: FAST}).sport == OWN
    for _ in range(REHASH_ROUNDS - 1):
        assert plb.step({OWN: SLOW}).sport == OWN
    assert plb.step({OWN: SLOW}).sport != OWN


def test_plb_counts_a_round_by_the_half_of_its_packets() -> None:
    plb = Plb(OWN, BASE_NS, rng())
    for _ in range(5 * REHASH_ROUNDS):
        assert plb.step({OWN: np.concatenate((SLOW, FAST, FAST))}).sport == OWN


def test_hopper_moves_to_the_better_of_two_when_that_is_better_by_far() -> None:
    hopper = Hopper(OWN, BASE_NS, rng())
    choice = hopper.step({})
    assert len(set(choice.probed)) == CHOICES
    assert OWN not in choice.probed
    better, worse = choice.probed
    delays = {OWN: SLOW, better: 0.7 * SLOW, worse: 0.75 * SLOW}
    for _ in range(LEAST_ROUNDS - 1):
        assert hopper.step(delays).sport == OWN
    choice = hopper.step(delays)
    assert choice.sport == better
    assert better not in choice.probed


@pytest.mark.parametrize(("own", "other"), [(SLOW, 0.85 * SLOW), (FAST, 0.1 * FAST)])
def test_hopper_stays_where_others_are_hardly_better_or_its_path_is_fast(
    own: np.ndarray, other: np.ndarray
) -> None:
    hopper = Hopper(OWN, BASE_NS, rng())
    probed = hopper.step({}).probed
    for _ in range(50):
        choice = hopper.step({OWN: own} | dict.fromkeys(probed, other))
        assert choice.sport == OWN
        probed = choice.probed


@pytest.mark.parametrize("make", [Plb, Hopper])
@pytest.mark.parametrize("seed", range(5))
def test_each_finds_a_free_path_in_the_end_and_then_rests(make: type[Plb | Hopper], seed: int) -> None:
    """One of four paths is free: a port leads over path `port % 4`."""
    chooser: Chooser = make(OWN, BASE_NS, rng(seed))
    choice = chooser.step({})
    for _ in range(2000):
        ports = (choice.sport, *choice.probed)
        choice = chooser.step({port: FAST if port % 4 == 3 else SLOW for port in ports})
    assert choice.sport % 4 == 3
