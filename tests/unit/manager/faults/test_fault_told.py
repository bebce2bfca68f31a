"""What other managers found: which rows it explains, and what is counted over it."""

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.causes import crossing, perhaps_crossing
from manager.faults.finding import Subject, cable
from manager.faults.told import Told
from manager.links.matrix import PathMatrix
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

ONE, OTHER = cable(DirectedLink("l0", "s0")), cable(DirectedLink("l1", "s1"))


@pytest.fixture
def bench() -> Bench:
    bench = Bench(LeafSpine(Shape(leaves=3, spines=2, hosts_per_leaf=2), np.random.default_rng(2)))
    for _ in bench.run(10, Trouble()):
        pass
    return bench


@pytest.fixture
def matrix(bench: Bench) -> PathMatrix:
    matrix = bench.watch.faults.losses.matrix
    assert matrix is not None
    return matrix


def test_rows_over_what_is_told_are_explained_until_it_is_told_no_more(matrix: PathMatrix) -> None:
    told = Told()
    assert not told.take({"a": ONE}).any()
    told.use(matrix)
    assert np.array_equal(told.rows, crossing(matrix, ONE))
    assert not told.take({"a": ONE, "b": OTHER}).any()
    assert np.array_equal(told.rows, crossing(matrix, ONE) | crossing(matrix, OTHER))
    assert np.array_equal(told.take({"b": OTHER}), crossing(matrix, ONE))
    assert np.array_equal(told.rows, crossing(matrix, OTHER))
    assert np.array_equal(told.take({}), crossing(matrix, OTHER))
    assert not told.rows.any()


def test_what_becomes_of_probes_over_it_is_counted_where_they_meet_nothing_else(matrix: PathMatrix) -> None:
    told, rows = Told(), len(matrix.known)
    told.use(matrix)
    told.take({"a": ONE, "b": OTHER})
    sent, lost = np.full(rows, 4.0), np.full(rows, 1.0)
    own = np.zeros(rows, bool)
    one, other = crossing(matrix, ONE), crossing(matrix, OTHER)
    own[np.flatnonzero(one & ~other)[0]] = True
    for _ in range(3):
        told.count(sent, lost, [own])
    alone = int((one & ~other & ~own).sum())
    assert (told.counts["a"].windows, told.counts["a"].sent, told.counts["a"].lost) == (
        3,
        12 * alone,
        3 * alone,
    )
    told.take({"a": ONE})
    assert told.counts["a"].windows == 3, "it goes on"


def test_losses_over_what_is_told_blame_nothing_else(bench: Bench) -> None:
    losses = bench.watch.faults.losses
    links = bench.fabric.routes.links
    dead = {i: 1.0 for i, link in enumerate(links) if {*link} == {"l0", "s0"}}
    losses.take_told({"a": ONE})
    for _ in bench.run(20, Trouble(loss=dead)):
        pass
    assert not bench.watch.findings.current
    losses.take_told({})
    for _ in bench.run(20, Trouble()):
        pass
    assert not bench.watch.findings.current, "what was lost before is forgotten"


def test_a_cause_that_is_anothers_to_name_hides_no_other_one(bench: Bench) -> None:
    losses = bench.watch.faults.losses
    losses.decides = lambda named: "s0" not in named.subject.name
    links = bench.fabric.routes.links
    dead = {i: 1.0 for i, link in enumerate(links) if {*link} == {"l0", "s0"}}
    for _ in bench.run(20, Trouble(loss=dead)):
        pass
    assert not bench.watch.findings.current
    nic = {i: 1.0 for i, link in enumerate(links) if "h5/nic0" in link}
    for _ in bench.run(25, Trouble(loss=dead | nic)):
        pass
    assert [finding.subject.name for finding in bench.watch.findings.current.values()] == ["h5/nic0 - l2"]


def test_a_subject_without_known_links_explains_nothing(matrix: PathMatrix) -> None:
    told = Told()
    told.use(matrix)
    told.take({"a": Subject("link", "x - y", (DirectedLink("x", "y"),))})
    assert not told.rows.any()


def test_rows_that_may_lead_over_what_is_told_blame_nothing_else(bench: Bench) -> None:
    known = bench.fabric.routes
    (name, crossed), *_ = ((n, c) for n, c in known.paths.items() if n.src == "h0/nic0" and len(c) == 4)
    unknown = DirectedLink("l0", f"?{name.src}>{name.dst_addr}:{name.sport}")
    paths = {**known.paths, name: (crossed[0], len(known.links), crossed[-1])}
    bench.fabric.routes = Routes(known.version + 1, (*known.links, unknown), paths)
    for _ in bench.run(2, Trouble()):
        pass
    losses = bench.watch.faults.losses
    assert losses.matrix is not None
    over_it = perhaps_crossing(losses.matrix, [*ONE.links])
    assert over_it.any()
    losses.take_told({"a": ONE})
    assert np.array_equal(losses.told.near, over_it)
    assert losses.explained[over_it].all()
    assert losses.told.take({})[over_it].all()
    assert not losses.explained.any()
