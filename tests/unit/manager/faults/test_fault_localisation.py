"""Single faults in simulated fabrics of many sizes: the right link, soon, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.causes import find_causes
from manager.faults.dead_links import localised
from manager.faults.link_model import ModelInputs
from manager.faults.link_watch import MOST_BEHIND
from manager.links.matrix import build_matrix
from manager.links.row_places import Nics
from manager.paths.windows import RowName
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import IN_TIME_S, LATE_S, WINDOW_S, Bench, false_alarms, random_case

SMALL = Shape(leaves=2, spines=3, hosts_per_leaf=3)


@pytest.mark.parametrize("seed", range(12))
def test_a_single_fault_is_put_down_to_its_link(seed: int) -> None:
    case = random_case(np.random.default_rng((77, seed)))
    assert case.right, case
    assert case.alone, case
    assert case.took_s <= IN_TIME_S, case
    assert case.others == 0, case


@pytest.mark.parametrize(("pods", "rails"), [(2, 0), (1, 2), (1, 4), (2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_so_is_one_in_a_fabric_of_pods_or_rails(pods: int, rails: int, seed: int) -> None:
    """Pods have cores between them, and rails a leaf of their own for each NIC of a host."""
    case = random_case(np.random.default_rng((80, seed)), most_leaves=3, pods=pods, rails=rails)
    assert (case.shape.pods, case.shape.rails) == (pods, rails)
    assert case.right, case
    assert case.alone, case
    assert case.took_s <= IN_TIME_S, case
    assert case.others == 0, case


@pytest.mark.parametrize("seed", range(8))
def test_a_fault_is_named_in_time_where_agents_tell_of_five_windows_at_once(seed: int) -> None:
    case = random_case(np.random.default_rng((79, seed)), at_once=5)
    assert case.right, case
    assert case.took_s <= (2.0 if case.loss > 0.05 else 2.7), case
    assert case.others == 0, case


def test_full_queues_blame_nobody_where_agents_tell_of_five_windows_at_once() -> None:
    bench = Bench(LeafSpine(replace(SMALL, load=0.4), np.random.default_rng(5)), at_once=5)
    assert _after(bench, 150, Trouble(saturated={0, 7})) == []


def test_in_a_large_fleet_windows_are_worked_off_together_and_in_a_small_one_each_by_itself() -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(3)))
    for interval_s, every in ((0.2, 1), (0.5, 1), (1.0, 3)):
        bench.watch.keep_pace(interval_s)
        assert bench.watch.queues_every == every
    step, worked_off = bench.watch.step, list[int]()
    bench.watch.step = lambda *args: worked_off.append(step(*args))  # type: ignore[assignment, func-returns-value, misc]
    assert _after(bench, 30, Trouble()) == []
    assert set(worked_off) == {0, 3}


@pytest.mark.parametrize(("every", "most"), [(1, 8), (3, 3)])
def test_a_manager_that_is_behind_works_off_so_many_windows_at_a_time(every: int, most: int) -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(3)))
    bench.watch.queues_every = every
    step, behind = bench.watch.step, list[int]()
    bench.watch.step = lambda *_: 0  # type: ignore[method-assign]
    assert _after(bench, 2, Trouble()) == []
    bench.watch.step = step  # type: ignore[method-assign]
    assert _after(bench, every, Trouble()) == []
    bench.watch.step = lambda *_: 0  # type: ignore[method-assign]
    assert _after(bench, MOST_BEHIND - 7, Trouble()) == []
    now_ns = round((bench.time_s + LATE_S) * 1e9)
    while worked_off := step(bench.time_s, now_ns, ()):
        behind.append(worked_off)
    assert behind[0] == max(behind) == most


@pytest.mark.parametrize("seed", range(4))
def test_in_a_fabric_of_two_leaves_both_links_of_a_spine_are_named(seed: int) -> None:
    case = random_case(np.random.default_rng((78, seed)), least_leaves=2, most_leaves=2)
    assert case.right, case
    assert len(case.named) == (1 if "/" in case.place else 2), case
    assert case.others == 0, case


@pytest.mark.parametrize(
    ("load", "everywhere", "saturated"),
    [(0.8, 0.0, ()), (0.0, 0.05, ()), (0.8, 0.05, ()), (0.4, 0.0, (0, 7))],
)
def test_load_and_losses_everywhere_and_full_queues_blame_nobody(
    load: float, everywhere: float, saturated: tuple[int, ...]
) -> None:
    trouble = Trouble(everywhere=everywhere, saturated=set(saturated))
    assert false_alarms(15.0, replace(SMALL, load=load), trouble, np.random.default_rng(5)) == []


def _after(bench: Bench, windows: int, trouble: Trouble) -> list[str]:
    """What is told in some windows."""
    already = len(bench.events)
    for _ in bench.run(windows, trouble):
        pass
    return [kind for kind, _ in bench.events[already:]]


@pytest.mark.parametrize("loss", [1.0, 0.3, 0.02])
def test_a_fault_has_one_event_at_its_start_and_one_at_its_end(loss: float) -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(3)))
    both = bench.fabric.cables()[-1]
    assert _after(bench, 20, Trouble()) == []
    kind = "link_silent" if loss == 1.0 else "link_lossy"
    assert _after(bench, 60, Trouble(loss=dict.fromkeys(both, loss))) == [kind]
    assert _after(bench, 60, Trouble()) == [f"{kind}_over"]
    assert bench.watch.findings.current == {}
    (past,) = bench.watch.findings.past
    assert past.end_s is not None
    assert past.end_s > past.start_s


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("before_it_died", [0.25, 0.5, 0.75])
def test_a_link_that_dies_within_a_window_is_silent(before_it_died: float, seed: int) -> None:
    """In the first window some of the probes came through before."""
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(seed)))
    both = bench.fabric.cables()[-1]
    _after(bench, 20, Trouble())
    told = _after(bench, 1, Trouble(loss=dict.fromkeys(both, 1.0 - before_it_died)))
    told += _after(bench, 20, Trouble(loss=dict.fromkeys(both, 1.0)))
    assert told == ["link_silent"]


@pytest.mark.parametrize("seed", range(6))
def test_a_link_that_dies_one_way_after_the_other_is_silent_in_the_end(seed: int) -> None:
    """It is called lossy first, as what crosses it the other way still comes through, and then silent."""
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(seed)))
    both = bench.fabric.cables()[-1]
    _after(bench, 20, Trouble())
    assert _after(bench, 6, Trouble(loss=dict.fromkeys(both, 0.65))) == ["link_lossy"]
    assert _after(bench, 30, Trouble(loss=dict.fromkeys(both, 1.0))) == ["link_lossy_over", "link_silent"]
    assert [finding.kind for finding in bench.watch.findings.current.values()] == ["silent"]
    assert _after(bench, 60, Trouble()) == ["link_silent_over"]


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_loses_most_packets_is_not_silent(seed: int) -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(seed)))
    loss = dict.fromkeys(bench.fabric.cables()[-1], 0.55)
    _after(bench, 20, Trouble())
    assert _after(bench, 600, Trouble(loss=loss)) == ["link_lossy"]


def test_two_faults_are_two_findings() -> None:
    bench = Bench(LeafSpine(replace(SMALL, leaves=4), np.random.default_rng(4)))
    cables = bench.fabric.cables()
    chosen = [cables[0], next(pair for pair in cables if not {0, *cables[0]} & set(pair))]
    assert _after(bench, 20, Trouble()) == []
    loss = dict.fromkeys(chosen[0], 1.0)
    assert _after(bench, 20, Trouble(loss=loss)) == ["link_silent"]
    assert _after(bench, 20, Trouble(loss=loss | dict.fromkeys(chosen[1], 0.4))) == ["link_lossy"]
    assert len(bench.watch.findings.current) == 2


def test_what_is_dead_is_named_with_what_cannot_be_told_from_it() -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(6)))
    links = bench.fabric.routes.links
    up = next(i for i, link in enumerate(links) if link.a == "l0" and link.b.startswith("s"))
    _after(bench, 15, Trouble())
    _after(bench, 15, Trouble(loss={up: 1.0}))
    spine = links[up].b
    assert localised(bench.watch.findings) == {("l0", spine), (spine, "l1")}
    _after(bench, 30, Trouble())
    assert localised(bench.watch.findings) == set()


def test_faint_losses_do_not_close_a_link() -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(7)))
    _after(bench, 15, Trouble())
    assert _after(bench, 30, Trouble(loss={0: 0.05})) == ["link_lossy"]
    assert localised(bench.watch.findings) == set()


PASSES: list[int] = []


class _Counted(tuple[DirectedLink, ...]):
    """Links that note in `PASSES` when somebody goes through all of them."""

    __slots__ = ()

    def __iter__(self) -> Iterator[DirectedLink]:
        PASSES.append(len(self))
        return super().__iter__()


@pytest.mark.parametrize("leaves", [2, 5, 11])
def test_causes_take_as_many_passes_over_the_links_however_many_there_are(leaves: int) -> None:
    fabric = LeafSpine(Shape(leaves=leaves, spines=4, hosts_per_leaf=2), np.random.default_rng(leaves))
    links = _Counted(fabric.routes.links)
    routes = Routes(1, links, fabric.routes.paths)
    names = [RowName(*path, path.sport) for path in routes.paths]
    PASSES.clear()
    find_causes(build_matrix(names, routes, Nics()))
    assert len(PASSES) <= 10


def test_a_leaf_that_does_not_answer_is_a_switch_as_the_others_are() -> None:
    bench = Bench(LeafSpine(replace(SMALL, leaves=4), np.random.default_rng(8)))
    _after(bench, 15, Trouble())
    fabric, names = bench.fabric, bench.watch.windows.names
    silent = {"l0": "?h0/nic0", "l1": "?h3/nic0"}
    links = tuple(DirectedLink(silent.get(a, a), silent.get(b, b)) for a, b in fabric.routes.links)
    owners = {str(each.nics[0].ipv4): f"{each.host}/nic0" for each in fabric.hellos}
    nics = Nics(owners, {nic: [address] for address, nic in owners.items()})
    switches = []
    for routes in (fabric.routes, Routes(1, links, fabric.routes.paths)):
        classes = find_causes(build_matrix(names, routes, nics)).classes
        switches.append({each.subject.name for each in classes if each.subject.kind == "switch"})
    assert switches[1] == {silent.get(name, name) for name in switches[0]}
    assert switches[1] & set(silent.values())


class _Unrest(Bench):
    """A bench whose known paths change every second: some are not known for a while, and links come to be known."""

    kind = "paths"

    @property
    def routes(self) -> Routes:
        routes, second = self.fabric.routes, round(self.time_s)
        if self.kind == "links":
            more = tuple(DirectedLink(f"l{i}", f"x{i}") for i in range(second - 1000))
            return Routes(second, (*routes.links, *more), routes.paths)
        forgotten = np.random.default_rng(second).choice(len(routes.paths), 3, replace=False).tolist()
        known = {name: links for i, (name, links) in enumerate(routes.paths.items()) if i not in forgotten}
        return Routes(second, routes.links, known)


@pytest.mark.parametrize("kind", ["paths", "links"])
@pytest.mark.parametrize(("leaves", "loss"), [(3, 0.02), (4, 0.02), (3, 0.1)])
def test_a_fault_is_found_while_known_paths_change_every_second(kind: str, leaves: int, loss: float) -> None:
    bench = _Unrest(LeafSpine(replace(SMALL, leaves=leaves), np.random.default_rng(leaves)))
    bench.kind = kind
    both = next(
        pair
        for pair in bench.fabric.cables()
        if all("/" not in end for end in bench.fabric.routes.links[pair[0]])
    )
    assert _after(bench, 20, Trouble()) == []
    assert _after(bench, 40, Trouble(loss=dict.fromkeys(both, loss))) == ["link_lossy"]
    (finding,) = bench.watch.findings.current.values()
    assert set(finding.subject.links) == {bench.fabric.routes.links[i] for i in both}
    assert _after(bench, 60, Trouble()) == ["link_lossy_over"]


def test_what_a_path_lost_on_other_links_is_not_held_against_those_that_it_takes_now() -> None:
    """All paths over a lossy link are routed round it: the losses of before blame none of their new links."""
    bench = Bench(LeafSpine(replace(SMALL, leaves=4), np.random.default_rng(9)))
    _after(bench, 20, Trouble())
    rows = bench.fabric.routes
    named = [name for name, links in rows.paths.items() if len(links) == 4]
    up = rows.paths[named[0]][1]
    _after(bench, 3, Trouble(loss={up: 0.5}))
    number = {link: i for i, link in enumerate(rows.links)}
    leaf, spine = rows.links[up]
    other = next(s for s in ("s0", "s1", "s2") if s != spine)
    paths = {}
    for name, links in rows.paths.items():
        hops = [rows.links[i] for i in links]
        if rows.links[up] in hops:
            hops[1:3] = DirectedLink(leaf, other), DirectedLink(other, hops[2].b)
        paths[name] = tuple(number[hop] for hop in hops)
    bench.fabric.routes = Routes(2, rows.links, paths)
    assert _after(bench, 40, Trouble()) == []


class _Slow(Bench):
    """A bench that takes a second to make a model, while windows go on and NICs begin to probe one by one."""

    behind: tuple[float, ModelInputs] | None = None

    def run(self, windows: int, trouble: Trouble) -> Iterator[float]:
        for _ in range(windows):
            now_s = (self._number + 1) * WINDOW_S + LATE_S
            now_ns = round(now_s * 1e9)
            begun = (self._number - 10_000) // 2
            for report in self.fabric.window(self._number, trouble)[:begun]:
                self.watch.hear(report, now_ns)
            due = self.watch.due(self.routes)
            if self.behind is None and due is not None:
                self.behind = now_s, due
            if self.behind is not None and now_s - self.behind[0] >= 1.0:
                self.watch.take(self.behind[1].make(), now_s)
                self.behind = None
            self.watch.step(now_s, now_ns, ())
            self._number += 1
            yield now_s


@pytest.mark.parametrize("loss", [1.0, 0.1])
def test_windows_are_worked_off_while_a_model_is_being_made(loss: float) -> None:
    shape = replace(SMALL, leaves=4, hosts_per_leaf=6)
    bench = _Slow(LeafSpine(shape, np.random.default_rng(10)))
    assert _after(bench, 70, Trouble()) == []
    both = bench.fabric.cables()[-1]
    told = _after(bench, 26, Trouble(loss=dict.fromkeys(both, loss)))
    assert told == ["link_silent" if loss == 1.0 else "link_lossy"]
    (finding,) = bench.watch.findings.current.values()
    assert set(finding.subject.links) == {bench.fabric.routes.links[i] for i in both}
