"""What is wrong in a subnet is in the views, among the events and the metrics, as what is wrong elsewhere is."""

import numpy as np
import pytest
from fat_trees import without
from ib_worlds import clos, port
from large_fleet import collector_of

from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.reports import IbGrowth, pack_growth, subnet_pieces
from cwdp.shared.ib.subnet import Subnet
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.model import KnownLinks
from manager.state import FleetState
from manager.view import link_views
from manager.view.severity import severity


class Managed:
    """A manager that a reader tells of a subnet, once a second."""

    def __init__(self) -> None:
        self.state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
        self.now_s, self._number, self._subnet = 0.0, 0, clos()

    def poll(self, subnet: Subnet, **grown: dict[int, float]) -> None:
        """Counters that grow, by name and row."""
        self.now_s += 1.0
        if subnet is not self._subnet or not self._number:
            self._number, self._subnet = self._number + 1, subnet
            for piece in subnet_pieces("h0", self._number, subnet):
                self.state.subnets.hear_subnet(piece, self.now_s)
        per_s = np.zeros((len(subnet.ports), len(NAMES)))
        for name, by_row in grown.items():
            for row, value in by_row.items():
                per_s[row, NAMES.index(name)] = value
        growth = Growth(per_s, np.zeros_like(per_s, bool))
        told = IbGrowth(host="h0", number=self._number, first=0, ports=len(per_s), data=pack_growth(growth))
        self.state.subnets.hear_growth(told, self.now_s)
        self.state.watch_links(self.now_s)

    def links(self) -> KnownLinks:
        """What the fabric's model is told."""
        return self.state.subnets.links(self.now_s, self.state.subnet_faults.dead_links)

    def states(self) -> dict[tuple[str, str], str]:
        """Of all links that are not well."""
        found = link_views.links(self.state)["links"]
        return {(one["a"], one["b"]): one["state"] for one in found if one["state"] not in ("ok", "unknown")}


def test_bit_errors_mark_one_direction_of_a_link() -> None:
    subnet, managed = clos(), Managed()
    row = port(subnet, "l0", 5)
    for _ in range(3):
        managed.poll(subnet, symbol_errors={row: 50.0})
    assert managed.states() == {("s0", "l0"): "bit_errors"}
    (event,) = managed.state.events
    assert (event.kind, event.host) == ("link_bit_errors", "fabric")
    (told,) = link_views.findings_of(managed.state)
    assert told["subject"]["name"] == "s0:1 > l0:5"


def test_a_link_that_is_cut_is_dead_and_over_when_it_is_back() -> None:
    whole, managed = clos(), Managed()
    row = port(whole, "l0", 5)
    gone = without(whole, [(row, int(whole.ports["peer"][row]))])
    for subnet in (whole, gone, gone):
        managed.poll(subnet)
    assert [each["kind"] for each in link_views.findings_of(managed.state)] == ["dead"]
    known = managed.links()
    assert managed.states() == {("l0", "s0"): "dead", ("s0", "l0"): "dead"}
    assert {("l0", "s0"), ("s0", "l0")} <= set(known.links)
    managed.poll(whole)
    assert managed.states() == {}
    assert sorted(managed.links().links) == sorted(known.links)
    assert [one.kind for one in managed.state.events] == ["link_dead", "link_dead_over"]


def test_they_are_counted_by_kind_and_severity() -> None:
    subnet, managed = clos(), Managed()
    for _ in range(3):
        managed.poll(subnet, link_downed={port(subnet, "l1", 6): 3.0})
    samples = {
        (sample.name, sample.labels.get("kind")): sample.value
        for family in collector_of(managed.state).scrape({}).collect()
        for sample in family.samples
    }
    assert samples["cwdp_findings", "flapping"] == 1
    assert samples["cwdp_findings", "degraded"] == 0


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("dead", "critical"),
        ("bit_errors", "warning"),
        ("degraded", "warning"),
        ("congested", "info"),
        ("counters", "info"),
    ],
)
def test_what_is_no_fault_of_hardware_alerts_nobody(kind: str, how: str) -> None:
    assert severity(kind) == how
