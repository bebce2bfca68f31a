"""Few probes: what a fit, the graph and a whole fleet claim to know from them, and how far they are off."""

import numpy as np
import pytest

from cwdp.shared.clocksync import Exchanges, FitReason, fit_edges
from cwdp.shared.clocksync._types import F64, I64

SLOPE = 40e-6
PAIR_NS = 10_000.0


def pairs_of_probes(seed: int, *, edges: int, pairs: int, seconds: float, queued: float) -> Exchanges:
    """Pairs whose two probes mostly meet the same queue, as coded ones do."""
    rng = np.random.default_rng(seed)
    first = np.sort(rng.uniform(0, seconds * 1e9, (edges, pairs)), axis=1)

    def delay() -> F64:
        queue = (rng.random((edges, pairs)) < queued) * rng.exponential(50e3, (edges, pairs))
        another = (rng.random((edges, pairs)) < queued) * rng.exponential(50e3, (edges, pairs))
        second = np.where(rng.random((edges, pairs)) < 0.8, queue, another)
        queues = np.stack((queue, second), axis=2).reshape(edges, -1)
        return np.asarray(5000 + queues + rng.exponential(200, queues.shape))

    def stamp(true_ns: F64, slope: float = 0.0) -> I64:
        return np.rint(true_ns * (1 + slope)).astype(np.int64).ravel()

    t1 = np.stack((first, first + PAIR_NS), axis=2).reshape(edges, -1)
    t2 = t1 + delay()
    t3 = t2 + 1000
    one = np.ones(t1.size)
    starts = np.arange(edges + 1) * 2 * pairs
    return Exchanges(stamp(t1), stamp(t2, SLOPE), stamp(t3, SLOPE), stamp(t3 + delay()), starts, one, one)


@pytest.mark.parametrize("queued", [0.0, 0.5, 0.8])
@pytest.mark.parametrize(("pairs", "seconds"), [(6, 0.3), (12, 0.5), (25, 1.0), (50, 2.0), (200, 2.0)])
def test_a_fit_of_few_pairs_is_as_good_as_it_says(pairs: int, seconds: float, queued: float) -> None:
    fits = fit_edges(pairs_of_probes(pairs, edges=400, pairs=pairs, seconds=seconds, queued=queued))
    good = fits.valid
    assert good.mean() > 0.5
    offset = ((fits.offset_ns + fits.offset_frac_ns - SLOPE * fits.ref_ns) / fits.sigma_offset_ns)[good]
    slope = ((fits.slope - SLOPE) / fits.sigma_slope)[good]
    for score in (offset, slope):
        assert np.sqrt(np.mean(np.minimum(np.abs(score), 10.0) ** 2)) < 1.6
        assert np.mean(np.abs(score) > 5) < 0.02


def test_probes_that_all_left_together_are_no_fit() -> None:
    data = pairs_of_probes(1, edges=5, pairs=3, seconds=0.5, queued=0.5)
    many = np.repeat(np.arange(len(data.t1_ns)), 4)
    stamps = (data.t1_ns[many], data.t2_ns[many], data.t3_ns[many], data.t4_ns[many])
    again = Exchanges(*stamps, data.starts * 4, np.ones(len(many)), np.ones(len(many)))
    assert set(fit_edges(again).reason) == {FitReason.TOO_FEW}
