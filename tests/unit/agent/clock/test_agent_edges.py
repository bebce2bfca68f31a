"""A host's edges: each keeps its slot and what is known of it while others come and go."""

import numpy as np
import pytest
from clocks import ChangingClock
from hypothesis import given
from hypothesis import strategies as st

from cwdp.agent.clock.edges import LEAST_SLOTS, EdgeName, HostEdges
from cwdp.agent.clock.window import Samples
from cwdp.shared.bus.messages import DriftPrior

S = 1_000_000_000
ONE_WAY_NS = 8_000
STEP_NS = S // 4


def _names(*peers: str) -> list[EdgeName]:
    return [("a/nic0", f"{peer}/nic0") for peer in peers]


class Fabric:
    """Peers whose clocks are known, probed without noise except for a jitter of some ns.

    Attributes:
        clocks: each peer's, against ours.
    """

    def __init__(self, clocks: dict[str, ChangingClock]) -> None:
        self.clocks = clocks
        self.now_ns = 100 * S
        self._rng = np.random.default_rng(3)

    def probe(self, edges: HostEdges, peers: list[str], per_step: int = 50) -> None:
        """A quarter of a second of probing."""
        t1 = self.now_ns + np.arange(per_step) * (STEP_NS // per_step)
        slot_of = edges.slots(_names(*peers))
        stamps_ns = np.zeros((4, len(peers), per_step), dtype=np.int64)
        for row, peer in enumerate(peers):
            there, back = self._rng.exponential(5.0, (2, per_step)).astype(np.int64) + ONE_WAY_NS
            at_peer = self.clocks[peer].at(t1 + there)
            stamps_ns[:, row] = t1, at_peer, at_peer, t1 + there + back
        edge = np.repeat(slot_of, per_step)
        weight = np.ones(len(edge))
        edges.add(self.now_ns, Samples(edge, stamps_ns.reshape(4, -1), weight, weight))
        self.now_ns += STEP_NS

    def offset_ns(self, peer: str, local_ns: int) -> float:
        clock = self.clocks[peer]
        return clock.offset_ns + clock.rate * local_ns


@pytest.fixture
def fabric() -> Fabric:
    return Fabric({"b": ChangingClock(2 * S, 3e-5), "c": ChangingClock(-S, -2e-5), "d": ChangingClock(17)})


def test_fits_are_of_the_right_peers(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b", "c", "d"))
    for _ in range(8):
        fabric.probe(edges, ["b", "c", "d"])
    fits = {fit.dst: fit for fit in edges.fit(fabric.now_ns)}
    assert sorted(fits) == ["b/nic0", "c/nic0", "d/nic0"]
    for peer, clock in fabric.clocks.items():
        fit = fits[f"{peer}/nic0"]
        truth = fabric.offset_ns(peer, fit.ref_local_ns)
        assert fit.offset_base_ns + fit.offset_ns == pytest.approx(truth, abs=3)
        assert fit.slope == pytest.approx(clock.rate, abs=1e-8)
        assert fit.margin_ns == pytest.approx(ONE_WAY_NS, abs=5)
        assert not fit.torn


def test_a_peer_that_does_not_answer_is_left_out_and_harms_none(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b", "silent", "c"))
    for _ in range(8):
        fabric.probe(edges, ["b", "c"])
    assert [fit.dst for fit in edges.fit(fabric.now_ns)] == ["b/nic0", "c/nic0"]


def test_nothing_to_fit(fabric: Fabric) -> None:
    edges = HostEdges()
    assert edges.fit(fabric.now_ns) == []
    edges.assign(_names("b"))
    assert edges.fit(fabric.now_ns) == []
    edges.assign([])
    assert edges.fit(fabric.now_ns) == []


def test_a_peer_that_steps_its_clock_tears_the_fit(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b", "c"))
    for _ in range(4):
        fabric.probe(edges, ["b", "c"])
    fabric.clocks["b"] = ChangingClock(2 * S + 1_000_000, 3e-5)
    for _ in range(4):
        fabric.probe(edges, ["b", "c"])
    assert {fit.dst: fit.torn for fit in edges.fit(fabric.now_ns)} == {"b/nic0": True, "c/nic0": False}


def test_a_new_peer_in_an_old_ones_slot_starts_anew(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b"))
    for _ in range(8):
        fabric.probe(edges, ["b"])
        edges.fit(fabric.now_ns)
    slot = edges.slots(_names("b"))
    edges.assign([])
    edges.assign(_names("c"))
    assert edges.fit(fabric.now_ns) == []
    while edges.slots(_names("c")) != slot:  # slots are used in turn
        edges.assign([])
        edges.assign(_names("c"))
    for _ in range(8):
        fabric.probe(edges, ["c"])
    (fit,) = edges.fit(fabric.now_ns)
    assert fit.slope == pytest.approx(-2e-5, abs=1e-8)


def test_the_managers_word_narrows_the_slope(fabric: Fabric) -> None:
    sigmas = []
    for priors in ([], [DriftPrior(dst="b/nic0", slope=3e-5, sigma=1e-11)]):
        edges = HostEdges()
        edges.assign(_names("b"))
        edges.believe(priors, fabric.now_ns)
        for _ in range(3):
            fabric.probe(edges, ["b"])
        (fit,) = edges.fit(fabric.now_ns)
        sigmas.append(fit.sigma_slope)
    assert sigmas[1] <= 1e-11 < sigmas[0]


def test_the_managers_word_counts_only_where_it_is_surer(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b"))
    edges.believe(
        [DriftPrior(dst="b/nic0", slope=-1.0, sigma=1.0), DriftPrior(dst="x/nic0", slope=9.0, sigma=0.1)],
        fabric.now_ns,
    )
    for _ in range(8):
        fabric.probe(edges, ["b"])
    for _ in range(2):
        (fit,) = edges.fit(fabric.now_ns)
    assert fit.slope == pytest.approx(3e-5, abs=1e-8)


def test_the_word_of_a_manager_that_has_fallen_silent_counts_no_more(fabric: Fabric) -> None:
    edges = HostEdges()
    edges.assign(_names("b"))
    edges.believe([DriftPrior(dst="b/nic0", slope=2.9e-5, sigma=1e-11)], fabric.now_ns)
    for _ in range(9):
        fabric.probe(edges, ["b"])
    (fit,) = edges.fit(fabric.now_ns)
    assert fit.slope == pytest.approx(3e-5, abs=1e-8)
    assert fit.sigma_slope > 1e-11


def test_there_is_room_for_more_than_there_was_at_first(fabric: Fabric) -> None:
    edges = HostEdges()
    many = [f"p{n}" for n in range(3 * LEAST_SLOTS)]
    fabric.clocks |= {peer: ChangingClock(1000 * n) for n, peer in enumerate(many)}
    edges.assign(_names("b"))
    fabric.probe(edges, ["b"])
    edges.assign(_names("b", *many))
    assert len(set(edges.slots(_names("b", *many)).tolist())) == 1 + len(many)
    for _ in range(4):
        fabric.probe(edges, ["b", *many], per_step=10)
    fits = {fit.dst: fit for fit in edges.fit(fabric.now_ns)}
    assert len(fits) == 1 + len(many)
    assert fits["p100/nic0"].offset_base_ns + fits["p100/nic0"].offset_ns == pytest.approx(100_000, abs=20)


peers = st.lists(st.sampled_from([f"p{n}" for n in range(30)]), max_size=40)


@given(st.lists(peers, max_size=12))
def test_an_edge_keeps_its_slot_while_it_is_probed(rounds: list[list[str]]) -> None:
    edges = HostEdges()
    before: dict[str, int] = {}
    for now in rounds:
        edges.assign(_names(*now))
        unique = list(dict.fromkeys(now))
        slots = dict(zip(unique, edges.slots(_names(*unique)).tolist(), strict=True))
        assert len(set(slots.values())) == len(slots)
        assert all(slots[peer] == before[peer] for peer in slots.keys() & before.keys())
        assert all(0 <= slot < LEAST_SLOTS for slot in slots.values())
        before = slots
