"""Few probes: what a fit, the graph and a whole fleet claim to know from them, and how far they are off."""

import numpy as np
import pytest

from cwdp.shared.bus.edges import EdgeFit, fit_rows
from cwdp.shared.bus.messages import Report
from cwdp.shared.clocksync import Exchanges, FitReason, fit_edges
from cwdp.shared.clocksync._types import F64, I64
from manager.clock.service import PRIORS_EVERY, ClockService
from manager.clock.timeline import Identity
from tools.sim.fleet.probes import FleetOptions
from tools.sim.fleet.simulation import FleetSimulation

SLOPE = 40e-6
PAIR_NS = 10_000.0
HOSTS = ("a", "b", "c")
BUSY = {"jitter_ns": 500.0, "queued": 0.8, "queue_ns": 100_000.0, "busy_s": 0.3}
ROUGH = {"jitter_ns": 5_000.0, "queued": 0.6, "queue_ns": 100_000.0, "busy_s": 0.05}
EVEN = {"jitter_ns": 2_000.0, "queued": 0.0}


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


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("pairs_per_s", "drift_ppm", "network"),
    [(12.5, 50.0, BUSY), (12.5, 50.0, ROUGH), (25.0, 100.0, BUSY), (25.0, 5.0, ROUGH), (25.0, 50.0, EVEN)],
)
def test_a_fleet_that_probes_little_is_within_its_bounds_from_the_start(
    seed: int, pairs_per_s: float, drift_ppm: float, network: dict[str, float]
) -> None:
    options = FleetOptions(
        seed=seed, pairs_per_s=pairs_per_s, drift_ppm=drift_ppm, seconds=8.0, wander=1e-9, **network
    )
    assert FleetSimulation(options).run().between(0.0, options.seconds).outside < 0.001


def reports(at_s: float, sigma_slope: float) -> list[Report]:
    """Every host's fits of the two others; all clocks are alike."""
    now_ns = round(at_s * 1e9)
    return [
        Report(
            host=src,
            boot_id="",
            seq=0,
            local_ns=now_ns,
            fits=fit_rows([_fit(src, dst, now_ns, sigma_slope) for dst in HOSTS if dst != src]),
            counters={},
            clock=None,
        )
        for src in HOSTS
    ]


def _fit(src: str, dst: str, now_ns: int, sigma_slope: float) -> EdgeFit:
    return EdgeFit(
        src=f"{src}/nic0",
        dst=f"{dst}/nic0",
        ref_local_ns=now_ns,
        offset_base_ns=0,
        offset_ns=0.0,
        slope=0.0,
        margin_ns=5000.0,
        sigma_offset_ns=500.0,
        sigma_out_ns=700.0,
        sigma_back_ns=700.0,
        sigma_slope=sigma_slope,
        points=8.0,
        pure_share=1.0,
    )


@pytest.mark.parametrize(("sigma_slope", "told"), [(500e-9, False), (5e-9, True)])
def test_agents_are_told_no_rate_that_is_still_learnt_from_their_slopes(
    sigma_slope: float, told: bool
) -> None:
    service = ClockService(Identity(timeline="t", starts=1), continued=False)
    priors = []
    for number in range(4 * PRIORS_EVERY):
        now_s = 10.0 + number * 0.25
        for report in reports(now_s, sigma_slope):
            service.hear(report, HOSTS, now_s)
        edges = service.begin(now_s)
        if edges is None:
            continue
        solved = service.solve_edges(edges)
        assert solved is not None
        service.finish(edges, solved, now_s)
        priors += [prior for update in service.updates() for prior in update.priors]
    assert bool(priors) == told
    assert all(prior.sigma < 50e-9 for prior in priors)
