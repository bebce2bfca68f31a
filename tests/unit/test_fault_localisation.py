"""Single faults in simulated fabrics of many sizes: the right link, soon, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.causes import find_causes
from manager.queues.matrix import Nics, build_matrix
from manager.queues.windows import RowName
from tools.sim.faults import IN_TIME_S, Bench, false_alarms, random_case
from tools.sim.leafspine import LeafSpine, Shape, Trouble

SMALL = Shape(leaves=2, spines=3, hosts_per_leaf=3)


@pytest.mark.parametrize("seed", range(12))
def test_a_single_fault_is_put_down_to_its_link(seed: int) -> None:
    case = random_case(np.random.default_rng((77, seed)))
    assert case.right, case
    assert case.alone, case
    assert case.took_s <= IN_TIME_S, case
    assert case.others == 0, case


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
    assert bench.watch.findings.dead_links() == {("l0", spine), (spine, "l1")}
    _after(bench, 30, Trouble())
    assert bench.watch.findings.dead_links() == set()


def test_faint_losses_do_not_close_a_link() -> None:
    bench = Bench(LeafSpine(SMALL, np.random.default_rng(7)))
    _after(bench, 15, Trouble())
    assert _after(bench, 30, Trouble(loss={0: 0.05})) == ["link_lossy"]
    assert bench.watch.findings.dead_links() == set()


class _Counted(tuple[DirectedLink, ...]):
    """Links that count how often somebody goes through all of them."""

    passes = 0

    def __iter__(self) -> Iterator[DirectedLink]:
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("leaves", [2, 5, 11])
def test_causes_take_as_many_passes_over_the_links_however_many_there_are(leaves: int) -> None:
    fabric = LeafSpine(Shape(leaves=leaves, spines=4, hosts_per_leaf=2), np.random.default_rng(leaves))
    links = _Counted(fabric.routes.links)
    routes = Routes(1, links, fabric.routes.paths)
    names = [RowName(*path, path.sport) for path in routes.paths]
    find_causes(build_matrix(names, routes, Nics()))
    assert links.passes <= 10
