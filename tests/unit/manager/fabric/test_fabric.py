"""Routes from what hosts tell: right where nobody lies, unmoved by one who does, whole where nobody answers."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from fabric_fakes import FakeClos
from msgspec.structs import replace

from cwdp.shared.bus.messages import Trace, TraceReport
from manager.fabric.fabric import FORGIVE_S, LIES_LAST_S, Fabric
from manager.fabric.routes import DirectedLink, PathName, is_private
from manager.fabric.traces import FORGET_AFTER_S, MOST_HOPS, MOST_PORTS_A_PAIR

KINDS: list[dict[str, Any]] = [
    {},
    {"leaves": 3, "spines": 3, "hosts_per_leaf": 5},
    {"leaves": 4, "spines": 8, "hosts_per_leaf": 2},
    {"leaves": 4, "pods": 2, "hosts_per_leaf": 3},
    {"version": 6, "leaves": 3},
    {"nics": 2, "leaves": 3, "hosts_per_leaf": 2},
]
FABRICS = pytest.mark.parametrize("kind", KINDS, ids=str)


def crossed(fabric: Fabric) -> set[DirectedLink]:
    """Links that some path crosses."""
    routes = fabric.routes
    return {routes.links[number] for links in routes.paths.values() for number in links}


def known(fabric: Fabric) -> set[DirectedLink]:
    """Of those, the ones between nodes that answer."""
    return {link for link in crossed(fabric) if not (link.a + link.b).count("?")}


def is_chain(fabric: Fabric, name: PathName) -> bool:
    """Whether each link begins where the one before ended, but behind what is not known."""
    links = [fabric.routes.links[number] for number in fabric.routes.paths[name]]
    return all(before.b == after.a or is_private(before.b) for before, after in pairwise(links))


@FABRICS
def test_the_links_of_all_paths_are_the_fabrics(kind: dict[str, Any]) -> None:
    clos, fabric = FakeClos(**kind), Fabric()
    clos.tell(fabric, ports=40)
    assert crossed(fabric) == clos.links()
    assert all(is_chain(fabric, name) for name in fabric.routes.paths)


@FABRICS
def test_each_path_has_its_own_hops(kind: dict[str, Any]) -> None:
    clos, fabric = FakeClos(**kind), Fabric()
    clos.tell(fabric, ports=4)
    for src, dst in clos.pairs():
        for sport, links in fabric.routes.ports(src.name, dst.address).items():
            nodes = [fabric.routes.links[number].b for number in links]
            assert nodes == [*clos.way(src, dst, sport), dst.name]
            assert fabric.routes.paths[PathName(src.name, dst.address, sport)] == links


def test_a_version_stands_for_the_same_links() -> None:
    clos, fabric = FakeClos(), Fabric()
    clos.tell(fabric)
    before = fabric.routes
    clos.tell(fabric, now_s=30.0)
    assert fabric.routes is before
    clos.dead.add(("10.254.1.1", "10.254.3.2"))
    clos.tell(fabric, now_s=60.0)
    assert fabric.routes.version == before.version + 1
    assert crossed(fabric) == clos.links()
    assert fabric.routes.links[: len(before.links)] == before.links
    assert before.paths[PathName("h1/nic0", "10.2.0.1", 50_000)] is not None


def test_numbers_of_links_are_given_anew_when_most_are_of_no_use() -> None:
    clos, fabric = FakeClos(answers_at_end=False, answer=lambda: False), Fabric()
    clos.tell(fabric, ports=100)
    most = len(fabric.routes.links)
    assert most > 5_000
    clos.answers_at_end, clos.answer = True, lambda: True
    clos.tell(fabric, ports=100)
    clos.dead.add(("10.254.1.1", "10.254.3.2"))
    clos.tell(fabric, ports=100)
    assert len(fabric.routes.links) <= len(clos.links()) + 8


@pytest.mark.parametrize("seed", range(8))
def test_answers_that_are_missing_are_filled_in_where_only_one_fits(seed: int) -> None:
    rng = random.Random(seed)
    clos, fabric = FakeClos(leaves=3, pods=3, spines=4, answer=lambda: rng.random() > 0.2), Fabric()
    clos.tell(fabric, ports=40)
    assert known(fabric) <= clos.links()
    ends = {link for link in clos.links() if "/" in link.a + link.b}
    assert ends <= known(fabric)


def test_one_silent_spine_among_others_is_one_node() -> None:
    clos, fabric = FakeClos(silent={"10.254.3.2"}), Fabric()
    clos.tell(fabric)
    unknown = {node for link in crossed(fabric) for node in link if node.startswith("?")}
    assert unknown == {"?10.254.1.1>10.254.1.2", "?10.254.1.2>10.254.1.1"}


def test_a_silent_leaf_does_not_hide_the_spines() -> None:
    clos, fabric = FakeClos(leaves=3, silent={"10.254.1.1"}), Fabric()
    clos.tell(fabric)
    assert known(fabric) == {link for link in clos.links() if "10.254.1.1" not in link}
    assert all(is_chain(fabric, name) for name in fabric.routes.paths)


def test_silent_spines_leave_each_path_a_link_of_its_own() -> None:
    spines = {f"10.254.3.{i}" for i in range(1, 5)}
    clos, fabric = FakeClos(silent=spines), Fabric()
    clos.tell(fabric, ports=3)
    paths = fabric.routes.ports("h1/nic0", "10.2.0.1")
    assert len(set(paths.values())) == 3
    for links in paths.values():
        first, middle, last = (fabric.routes.links[number] for number in links)
        assert first == DirectedLink("h1/nic0", "10.254.1.1")
        assert middle.a == "10.254.1.1"
        assert is_private(middle.b)
        assert last == DirectedLink("10.254.1.2", "h5/nic0")


@pytest.mark.parametrize("answers_at_end", [True, False])
def test_where_nobody_answers_paths_share_the_nics_own_links_only(*, answers_at_end: bool) -> None:
    clos, fabric = FakeClos(answer=lambda: False, answers_at_end=answers_at_end), Fabric()
    clos.tell(fabric, ports=3)
    one, other = (fabric.routes.ports("h1/nic0", address) for address in ("10.2.0.1", "10.2.0.2"))
    every = [*one.values(), *other.values()]
    assert len({links[0] for links in every}) == 1
    assert len({links[1] for links in every}) == 6
    assert len({links[-1] for links in one.values()}) == 1
    assert fabric.routes.links[every[0][0]].a == "h1/nic0"
    assert fabric.routes.links[every[0][-1]].b == "h5/nic0"


def test_a_destination_that_does_not_answer_hides_nothing() -> None:
    clos, fabric = FakeClos(leaves=3, answers_at_end=False), Fabric()
    clos.tell(fabric, ports=40)
    assert crossed(fabric) == clos.links()


def test_a_path_that_broke_off_goes_on_to_the_leaf_of_its_destination() -> None:
    clos, fabric = FakeClos(), Fabric()
    clos.tell(fabric)
    trace = next(t for t in clos.report("h1", 24).traces if t.dst_addr == "10.2.0.1")
    broken = replace(trace, hops=trace.hops[:2], reached=False)
    fabric.hear(TraceReport(host="h1", traces=[broken]), ["nic0"], 1.0)
    fabric.step(1.0)
    assert crossed(fabric) == clos.links()


@pytest.mark.parametrize(("few", "many"), [(4, 6), (6, 4)])
def test_paths_of_both_versions_end_at_the_switches_that_answer_to_their_own(few: int, many: int) -> None:
    """So it is where queue pairs go by IPv4 and TCP by IPv6, whose end does not answer."""
    fabric, clos = Fabric(), {version: FakeClos(leaves=3, version=version) for version in (4, 6)}
    clos[6].answers_at_end = False
    fabric.know({**clos[4].addresses, **clos[6].addresses})
    for version, ports in ((few, 8), (many, 40)):
        for host in clos[version].hosts:
            fabric.hear(clos[version].report(host, ports), ["nic0"], 0.0)
    assert not fabric.step(0.0)
    assert crossed(fabric) == clos[4].links() | clos[6].links()
    assert all(is_chain(fabric, name) for name in fabric.routes.paths)


Lie = Callable[[Trace], Trace]
LIES: dict[str, Lie] = {
    "spine": lambda t: replace(t, hops=[t.hops[0], "6.6.6.6", *t.hops[2:]]) if len(t.hops) > 2 else t,
    "random": lambda t: replace(t, hops=[f"9.{t.sport % 251}.{i}.{id(t) % 251}" for i in range(len(t.hops))]),
    "short": lambda t: replace(t, hops=[t.hops[0], t.hops[-1]]) if len(t.hops) > 2 else t,
    "reversed": lambda t: replace(t, hops=t.hops[::-1]),
    "first": lambda t: replace(t, hops=["6.6.6.6", *t.hops[1:]]),
    "last": lambda t: replace(t, hops=[*t.hops[:-1], "6.6.6.6"]),
    "none at all": lambda t: replace(t, hops=[], reached=True),
    "loop": lambda t: replace(t, hops=t.hops * 2),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize(("kind", "share"), [*((kind, 1.0) for kind in KINDS), (KINDS[0], 0.2)], ids=str)
def test_one_liar_moves_nothing(kind: dict[str, Any], share: float, lie: Lie) -> None:
    clos, honest, fabric, rng = FakeClos(**kind), Fabric(), Fabric(), random.Random(4)
    clos.tell(honest, ports=16, without="h2")
    clos.tell(fabric, ports=16, without="h2")
    traces = [lie(t) if rng.random() < share else t for t in clos.report("h2", 16).traces]
    fabric.hear(TraceReport(host="h2", traces=traces), ["nic0", "nic1"], 0.0)
    fabric.step(0.0)
    assert known(fabric) <= clos.links()
    for name in honest.routes.paths:
        theirs = [honest.routes.links[number] for number in honest.routes.paths[name]]
        assert [fabric.routes.links[number] for number in fabric.routes.paths[name]] == theirs


def test_a_liar_is_set_aside_named_and_forgiven() -> None:
    clos, fabric = FakeClos(), Fabric()
    told = []
    for now in (0.0, LIES_LAST_S / 2, LIES_LAST_S + 1):
        told += clos.tell(fabric, now_s=now, without="h2")
        lies = [LIES["spine"](trace) for trace in clos.report("h2", 24).traces]
        fabric.hear(TraceReport(host="h2", traces=lies), ["nic0"], now)
        told += fabric.step(now)
    assert [(s.host, s.is_aside) for s in told] == [("h2", True)]
    assert set(fabric.aside) == {"h2"}
    assert "contradict" in told[0].reason
    assert known(fabric) <= clos.links()
    fabric.hear(clos.report("h2", 24), ["nic0"], 100.0)
    assert fabric.step(100.0) == []
    assert [(s.host, s.is_aside) for s in fabric.step(100.0 + FORGIVE_S)] == [("h2", False)]
    assert crossed(fabric) == clos.links()


def test_one_forged_answer_sets_nobody_aside() -> None:
    clos, fabric = FakeClos(), Fabric()
    clos.tell(fabric)
    forged = LIES["spine"](next(t for t in clos.report("h2", 24).traces if len(t.hops) > 2))
    fabric.hear(TraceReport(host="h2", traces=[forged]), ["nic0"], 1.0)
    assert [fabric.step(now) for now in (1.0, 50.0, 500.0)] == [[], [], []]
    assert known(fabric) == clos.links()


def test_honest_hosts_that_see_a_link_first_are_believed_once_another_does() -> None:
    clos, fabric = FakeClos(leaves=3), Fabric()
    clos.dead |= {("10.254.1.1", "10.254.3.2"), ("10.254.1.2", "10.254.3.2"), ("10.254.1.3", "10.254.3.2")}
    clos.tell(fabric)
    clos.dead.clear()
    fabric.hear(clos.report("h1", 24), ["nic0"], 1.0)
    fabric.step(1.0)
    assert not any("10.254.3.2" in link for link in known(fabric))
    fabric.hear(clos.report("h2", 24), ["nic0"], 2.0)
    assert fabric.step(2.0) == []
    assert any("10.254.3.2" in link for link in known(fabric))
    clos.tell(fabric, now_s=3.0)
    assert crossed(fabric) == clos.links()


@pytest.mark.parametrize("seed", range(4))
def test_hosts_that_learn_of_a_change_one_by_one_are_never_set_aside(seed: int) -> None:
    rng = random.Random(seed)
    clos, fabric = FakeClos(leaves=3), Fabric()
    clos.tell(fabric)
    links = [(f"10.254.1.{leaf}", f"10.254.3.{spine}") for leaf in (1, 2, 3) for spine in (1, 2, 3)]
    now = 0.0
    for _ in range(5):
        clos.dead = set(rng.sample(links, rng.randrange(0, 3)))
        for host in rng.sample(sorted(clos.hosts), len(clos.hosts)):
            now += 0.5
            fabric.hear(clos.report(host, 24), ["nic0"], now)
            assert fabric.step(now) == []
        assert crossed(fabric) == clos.links()


def test_reports_of_strangers_and_nonsense_are_refused_and_counted() -> None:
    clos, fabric = FakeClos(), Fabric()
    fabric.know(clos.addresses)
    good = clos.report("h1", 1).traces[0]
    bad = {
        "unknown_nic": replace(good, nic="eth7"),
        "unknown_destination": replace(good, dst_addr="192.0.2.1"),
        "not_sane": replace(good, hops=["not an address"]),
        "not_asked_for": replace(good, protocol=17),
    }
    for reason, trace in bad.items():
        fabric.hear(TraceReport(host="h1", traces=[trace]), ["nic0"], 0.0)
        assert fabric.store.reasons[reason] == 1
    for trace in (
        replace(good, hops=[f"10.9.9.{i}" for i in range(MOST_HOPS + 1)]),
        replace(good, hops=["10.9.9.9", "10.9.9.9"]),
        replace(good, hops=["fd0c:1::1"]),
    ):
        fabric.hear(TraceReport(host="h1", traces=[trace]), ["nic0"], 0.0)
    fabric.hear(TraceReport(host="h1", traces=[replace(good, dst_addr="10.1.0.1")]), ["nic0"], 0.0)
    assert fabric.store.reasons["not_sane"] == 4
    assert fabric.store.reasons["unknown_destination"] == 2
    fabric.step(0.0)
    assert len(fabric.routes.paths) == 0


def test_memory_is_bounded() -> None:
    clos, fabric = FakeClos(), Fabric()
    fabric.know(clos.addresses)
    good = clos.report("h1", 1).traces[0]
    for turn in range(20):
        flood = [
            replace(good, sport=1 + port, hops=[f"9.{turn}.{port // 250}.{port % 250}"])
            for port in range(2_000)
        ]
        fabric.hear(TraceReport(host="h1", traces=flood), ["nic0"], 0.0)
        fabric.step(0.0)
    assert len(fabric.store) == MOST_PORTS_A_PAIR
    assert fabric.store.reasons["too_many"] > 0
    assert len(fabric.store.names.of) < 10_000


def test_paths_that_nobody_tells_of_any_more_are_dropped() -> None:
    clos, fabric = FakeClos(), Fabric()
    clos.tell(fabric, ports=4)
    clos.tell(fabric, ports=2, now_s=FORGET_AFTER_S)
    assert {name.sport for name in fabric.routes.paths} == {50_000, 50_001, 50_002, 50_003}
    fabric.step(FORGET_AFTER_S + 1)
    assert {name.sport for name in fabric.routes.paths} == {50_000, 50_001}
    clos.tell(fabric, ports=4, now_s=FORGET_AFTER_S + 2)
    assert len({name.sport for name in fabric.routes.paths}) == 4


def test_an_address_that_moves_to_another_nic_is_followed() -> None:
    clos, fabric = FakeClos(), Fabric()
    clos.tell(fabric, ports=4)
    fabric.know(clos.addresses | {"10.2.0.1": "h9/nic0"})
    fabric.step(1.0)
    ends = {fabric.routes.links[links[-1]].b for links in fabric.routes.ports("h1/nic0", "10.2.0.1").values()}
    assert ends == {"h9/nic0"}
