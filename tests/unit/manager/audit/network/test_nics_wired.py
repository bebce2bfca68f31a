"""Where NICs are in the fabric, as facts: their leaf, where it ought to be, their rail, and why that is not known."""

import pytest
from clos import address, routes

from cwdp.shared.audit.facts import HostFacts, Subject
from manager.audit.compare import changed_facts
from manager.audit.network.wired import NO_PATH, SILENT, wired
from manager.fabric.model import Model
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.fabric.wiring import Miswired
from tests.unit.manager.audit.audit_world import check_text, host, judged


def _told(*names: str, nics: tuple[str, ...] = ("eth1",), **facts: str) -> list[HostFacts]:
    return [host(name, *(Subject(kind="nic", name=nic, facts=dict(facts)) for nic in nics)) for name in names]


def _model(known: Routes) -> Model:
    ends = {end for link in known.links for end in (link.a, link.b)}
    return Model(known, frozenset(end for end in ends if "/" in end))


def _two_rails() -> Model:
    """Two hosts with a NIC at either of two leaves."""
    links, paths = [], {}
    for ifname, leaf in (("eth1", "l1"), ("eth2", "l2")):
        for a, b in ((1, 2), (2, 1)):
            paths[PathName(f"h{a}/{ifname}", address(b), 50_000)] = (len(links), len(links) + 1)
            links += [DirectedLink(f"h{a}/{ifname}", leaf), DirectedLink(leaf, f"h{b}/{ifname}")]
    return _model(Routes(1, tuple(links), paths))


def _nics(facts: list[HostFacts]) -> list[Subject]:
    return [subject for each in facts for subject in each.subjects]


def test_nics_are_at_their_leaves() -> None:
    model = _model(routes())
    told = wired(_told("h1", "h6"), model, [Miswired("h6/eth1", "l3", "l1", "x")], model.nics)
    assert [one.facts for one in _nics(told)] == [
        {"leaf": "l1", "leaf_expected": "l1"},
        {"leaf": "l3", "leaf_expected": "l1"},
    ]
    text = check_text("nic.leaf", 'equals_fact = "nic.leaf_expected"')
    assert [(one.host, one.subject, one.found) for one in judged(text, *told).results] == [
        ("h6", "eth1", "l3")
    ]


def test_rails_are_numbered() -> None:
    model = _two_rails()
    told = wired(_told("h1", nics=("eth1", "eth2")), model, [], model.nics)
    assert [(one.facts["leaf"], one.facts["rail"]) for one in _nics(told)] == [("l1", 0), ("l2", 1)]


@pytest.mark.parametrize(
    ("links", "reason"),
    [((), NO_PATH), ((DirectedLink("h1/eth1", "?1"), DirectedLink("?1", "h2/eth1")), SILENT)],
)
def test_what_is_not_known_is_missing_with_its_reason(links: tuple[DirectedLink, ...], reason: str) -> None:
    paths = {PathName("h1/eth1", address(2), 50_000): (0, 1)} if links else {}
    told = wired(_told("h1", leaf="l9", rail="9"), _model(Routes(1, links, paths)), [], ["h1/eth1"])
    (nic,) = _nics(told)
    assert (nic.facts, nic.missing) == ({}, {"leaf": reason, "leaf_expected": reason})


def test_nics_that_do_not_probe_are_left_as_they_are() -> None:
    told = _told("h1", nics=("eth0",))
    assert wired(told, _model(routes()), [], ["h1/eth1"]) == told


def test_a_nic_that_is_at_another_leaf_shows_between_two_audits_of_the_network() -> None:
    plain, known, moved = _told("h1"), _told("h1", leaf="l1"), _told("h1", leaf="l2")
    assert [(one.fact, one.before, one.after) for one in changed_facts(known, moved)] == [
        ("nic.leaf", "l1", "l2")
    ]
    assert changed_facts(plain, known) == changed_facts(known, plain) == []
