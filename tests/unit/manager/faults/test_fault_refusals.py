"""Hosts without the keys that the others sign with: what is lost of their probes accuses nothing."""

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from manager.hosts.refusals import LATE_WINDOWS, Refusals
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import START_S, Bench

HOST = "h0"


class _Fleet:
    """A fabric with a fault that one host's own link seems to have, and what is found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(1)
        self.bench = Bench(LeafSpine(Shape(leaves=2, spines=2, hosts_per_leaf=3), rng))
        monkeypatch.setattr("manager.faults.watch.time", SimpleNamespace(time=lambda: self.bench.time_s))
        links = self.bench.fabric.routes.links
        own = [i for i, link in enumerate(links) if f"{HOST}/nic0" in link]
        self.refused = Trouble(loss=dict.fromkeys(own, 1.0))
        self.have([1], [1])
        self.run(30, Trouble())

    def have(self, others: list[int], one: list[int]) -> None:
        """Hosts say which keys they have."""
        for name, host in self.bench.members.hosts.items():
            self.bench.members.hear(replace(host.hello, key_ids=one if name == HOST else others), START_S)

    def run(self, windows: int, trouble: Trouble) -> None:
        for _ in self.bench.run(windows, trouble):
            pass

    @property
    def found(self) -> list[str]:
        return [finding.kind for finding in self.bench.watch.findings.current.values()]


def test_probes_that_a_host_refuses_which_missed_a_rotation_accuse_no_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = _Fleet(monkeypatch)
    fleet.have([1, 2], [1])
    fleet.bench.members.keys_in_use = lambda: {2}
    fleet.run(40, fleet.refused)
    assert fleet.bench.events == []
    fleet.have([2], [2])
    fleet.run(30, Trouble())
    assert fleet.bench.events == []
    fleet.run(10, fleet.refused)
    assert fleet.found == ["silent"]


def test_a_manager_that_waits_takes_back_what_it_found_once_it_knows_of_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = _Fleet(monkeypatch)
    fleet.run(LATE_WINDOWS // 2, fleet.refused)
    assert fleet.found == ["silent"]
    fleet.have([2], [1])
    fleet.run(40, fleet.refused)
    assert fleet.found == []
    assert [kind for kind, _ in fleet.bench.events] == ["link_silent", "link_silent_over"]


def test_a_link_that_was_silent_long_before_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _Fleet(monkeypatch)
    fleet.run(3 * LATE_WINDOWS, fleet.refused)
    fleet.have([2], [1])
    fleet.run(40, fleet.refused)
    assert fleet.found == ["silent"]


def test_who_refuses_is_new_once_and_again_after_a_while() -> None:
    refusals = Refusals()
    assert refusals.follow(["a"], 100) == {"a"}
    assert refusals.follow(["a"], 110) == set()
    assert refusals.follow([], 112) == set()
    windows = (100 - LATE_WINDOWS - 1, 100 - LATE_WINDOWS, 111, 112)
    assert [bool(refusals.at(window)) for window in windows] == [False, True, True, False]
    assert refusals.follow(["a"], 111 + LATE_WINDOWS + 1) == {"a"}
