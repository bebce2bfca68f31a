"""The variance of nodes, held against graphs whose variance is known."""

import numpy as np
import pytest

from cwdp.shared.clocksync.graph.laplacian import Laplacian

# Of these sizes, rounding left the pseudo-inverse of a complete graph with a variance of 1e15 below zero.
SIZES = (2, 3, 6, 80, 98, 120, 128, 143, 156, 170, 196, 223, 239, 255, 256)


@pytest.mark.parametrize("n", SIZES)
def test_where_everyone_probes_everyone_all_are_known_alike(n: int) -> None:
    """Of the complete graph of unit weights, the inverse against the mean is (I - J / n) / n."""
    a, b = np.triu_indices(n, 1)
    variance = Laplacian(n, a, b).variance(np.ones(len(a)))
    np.testing.assert_allclose(variance, (1 - 1 / n) / n, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 10, 60])
@pytest.mark.parametrize("weight", [1e-9, 1.0, 1e9])
def test_along_a_chain_ends_are_known_worse_than_its_middle(n: int, weight: float) -> None:
    chain = np.arange(n - 1)
    variance = Laplacian(n, chain, chain + 1).variance(np.full(n - 1, weight))
    assert (variance > 0).all()
    assert variance.argmin() in {(n - 1) // 2, n // 2}
    np.testing.assert_allclose(variance, variance[::-1], rtol=1e-9)


def test_islands_are_known_for_themselves_and_who_has_no_edge_is_not_known() -> None:
    a, b = np.array([0, 3, 3, 4]), np.array([1, 4, 5, 5])
    variance = Laplacian(6, a, b).variance(np.ones(4))
    np.testing.assert_allclose(variance, [1 / 4, 1 / 4, np.inf, 2 / 9, 2 / 9, 2 / 9])


@pytest.mark.parametrize("seed", range(40))
def test_weights_of_any_spread_give_a_variance_above_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 257))
    a, b = np.triu_indices(n, 1)
    drawn = rng.random(len(a)) < rng.choice([3, 8, 1000]) / n
    weight = 10 ** rng.uniform(-rng.choice([0, 1, 4, 14]), 0, int(drawn.sum()))
    variance = Laplacian(n, a[drawn], b[drawn]).variance(weight)
    known = np.isfinite(variance)
    assert set(np.flatnonzero(known)) == set(a[drawn]) | set(b[drawn])
    assert (variance[known] > 0).all()
