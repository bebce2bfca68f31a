"""Paths of the mesh of which nothing comes back: by the link that they share, or the NIC that they start at."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from manager.audit.network.dead import dead_paths
from manager.audit.network.pairs import REACHABLE
from manager.audit.network.standing import Known
from manager.audit.results import FABRIC
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Kind, cable
from tests.unit.manager.audit.network.meshed import mesh


def _lose(known: Known, is_lost: Callable[[str, str, int], bool]) -> Known:
    rows = np.array([is_lost(*path) for path in known.paths], bool)
    known.lost[rows] = known.sent[rows]
    return known


def _without(link: DirectedLink, known: Known) -> Known:
    """All that crosses a link, there or back, is lost."""
    rows = (known.crossed == known.routes.links.index(link)).any(axis=1)
    known.lost[rows] = known.sent[rows]
    return known


def test_a_mesh_that_is_well() -> None:
    known = mesh()
    known.lost[::3] = 99
    dead = dead_paths(known)
    assert (dead.results, dead.nodes, dead.between, dead.alive) == ([], set(), set(), len(known.paths))


@pytest.mark.parametrize("ends", [("l2", "s3"), ("s1", "l4"), ("l1", "s4")])
def test_the_link_that_all_dead_paths_share_is_named(ends: tuple[str, str]) -> None:
    known = _without(DirectedLink(*ends), mesh())
    dead = dead_paths(known)
    [result] = dead.results
    leaf, spine = sorted(ends)
    assert (result.check, result.host, result.subject, result.verdict) == (
        REACHABLE, FABRIC, f"{leaf} - {spine}", "fail"
    )  # fmt: skip
    assert result.found == "24 paths over it bring nothing back, and none over it does"
    assert set(dead.nodes) == set(ends)
    assert {leaf in pair for pair in dead.between} == {True}
    assert dead.alive == len(known.paths) - 24


def test_two_links_are_named_each() -> None:
    known = _without(DirectedLink("l2", "s3"), _without(DirectedLink("l1", "s1"), mesh()))
    assert [one.subject for one in dead_paths(known).results] == ["l1 - s1", "l2 - s3"]


def test_links_that_the_same_paths_cross_are_named_together() -> None:
    """A spine that is dead: nobody can tell it from its links, each of which leads to one leaf."""
    known = _lose(mesh(), lambda src, dst, port: port == 50_002 and {src, dst} == {"h1/eth1", "h3/eth1"})
    rows = np.array(
        [port == 50_002 and {src, dst} != {"h1/eth1", "h3/eth1"} for src, dst, port in known.paths]
    )
    known.sent[rows] = known.lost[rows] = 0
    [result] = dead_paths(known).results
    assert result.subject == "l1 - s2 or l2 - s2"
    assert result.found.startswith("2 paths over one of 2 links bring nothing back")


def test_the_link_of_a_nic_is_the_nics() -> None:
    known = _lose(mesh(), lambda src, dst, _: "h3/eth1" in (src, dst))
    dead = dead_paths(known)
    [result] = dead.results
    assert (result.host, result.subject, dead.nodes) == ("h3", "eth1", {"h3/eth1"})
    assert dead_paths(known, {"h3/eth1"}).results == []


def test_paths_that_share_no_dead_link_are_told_by_the_nic_that_they_start_at() -> None:
    known = mesh()
    mine = [row for row, (src, _, _) in enumerate(known.paths) if src == "h3/eth1"][:5]
    known.lost[mine] = known.sent[mine]
    known.lost[mine[-1] + 1] = 99
    dead = dead_paths(known)
    [result] = dead.results
    assert (result.check, result.host, result.subject, result.verdict) == (REACHABLE, "h3", "eth1", "fail")
    assert result.found.startswith("5 paths bring nothing back: to ")
    assert result.found.endswith("and 2 more")
    assert dead.alive == len(known.paths) - 5
    silent = {(min(pair), max(pair)) for row in mine for pair in [known.paths[row][:2]]}
    assert dead_paths(known, silent=silent).results == []


def test_paths_of_few_probes_are_not_judged() -> None:
    known = mesh()
    known.sent[:] = known.lost[:] = 4
    dead = dead_paths(known)
    assert (dead.results, dead.alive) == ([], 0)
    assert dead_paths(Known()).results == []


@pytest.mark.parametrize(
    ("kind", "is_told"), [("lossy", True), ("silent", True), ("slow", False), ("clock", False)]
)
def test_links_that_are_found_to_lose_account_for_single_ports_too(kind: Kind, is_told: bool) -> None:
    finding = Finding(
        number=1, kind=kind, subject=cable(DirectedLink("l1", "s1")), confidence=1.0, evidence=[], start_s=0.0,
        also=(cable(DirectedLink("h5/eth1", "l3")),),
    )  # fmt: skip
    dead = dead_paths(replace(mesh(), findings=[finding]))
    assert (dead.results, dead.nodes) == ([], {"l1", "s1", "h5/eth1"} if is_told else set())
