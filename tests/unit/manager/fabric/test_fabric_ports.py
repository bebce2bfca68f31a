"""Which ports are traced, which are probed, which are chosen; and how sure it is that all paths were found."""

import dataclasses
import itertools
import random
from typing import Any

import numpy as np
import pytest
from fabric_fakes import FakeClos, FakeNic
from msgspec.structs import replace
from traced_as_ordered import by_host, converge

from cwdp.shared.bus.messages import Desired, Hello, Leader, Nic, ProbeEdge, Trace, TraceReport
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.choice import confidence, covering_ports, disjoint_ports
from manager.fabric.discovery import CALM_S, MOST_PENDING, ORDER_INTERVAL_S, Discovery
from manager.fabric.fabric import Fabric
from manager.fabric.orders import BATCH, MOST_CANDIDATES, MOST_PORTS_A_HOST, InUse, Orders
from manager.fabric.path_counts import Known, PathCounts
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.hosts.members import Members
from manager.overrides.steering import SteerOverride, SteerTable
from manager.queue_pairs.traffic import Traffic
from manager.state import FleetState


def _ports_needed(distinct: int, wanted: float) -> int:
    """How many ports rule out one path more than they have shown."""
    return next(ports for ports in itertools.count(distinct) if confidence(ports, distinct) >= wanted)


@pytest.mark.parametrize("distinct", [1, 2, 4, 16, 64])
def test_the_stopping_rule_keeps_its_promise(distinct: int) -> None:
    # With one path more than were seen, how often does so many ports miss one?
    ports = _ports_needed(distinct, 0.99)
    rng = np.random.default_rng(distinct)
    drawn = rng.integers(0, distinct + 1, (2_000, ports))
    missed = np.array([len(np.unique(row)) <= distinct for row in drawn])
    assert missed.mean() < 0.02


def test_the_rule_is_that_of_the_literature() -> None:
    # Augustin et al. 2007, table for 95 %: 6, 11, 16, 21, 27 probes rule out 2, 3, 4, 5, 6 paths.
    assert [_ports_needed(k, 0.95) for k in range(1, 6)] == [6, 11, 16, 21, 27]
    assert confidence(0, 0) == confidence(3, 0) == 0.0


def test_disjoint_ports_are_one_a_path_and_far_apart_first() -> None:
    paths = {1: (0, 10, 20, 9), 2: (0, 10, 21, 9), 3: (0, 11, 21, 9), 4: (0, 10, 20, 9), 5: (0, 12, 22, 9)}
    assert disjoint_ports(paths) == [1, 3, 5, 2]
    assert disjoint_ports({}) == []


def test_probed_ports_change_only_where_that_covers_more() -> None:
    paths = {1: (1,), 2: (1,), 3: (2,), 4: (3,), 5: (4,)}
    assert covering_ports(paths, [1, 3, 4, 5]) == [1, 3, 4, 5]
    assert covering_ports(paths, [1, 2, 3, 9]) == [1, 4, 3, 9]
    assert covering_ports(paths, [9, 8]) == [9, 8]
    assert covering_ports(paths, [1, 2]) == [1, 3]
    assert covering_ports({}, [1, 2]) == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_probed_ports_cover_as_many_paths_as_they_can_and_stay(seed: int) -> None:
    rng = random.Random(seed)
    paths = {port: (rng.randrange(6),) for port in range(30)}
    before = rng.sample(range(40), 8)
    after = covering_ports(paths, before)
    assert len(set(after)) == 8
    spare = 8 - len([port for port in before if port not in paths])
    assert len({paths[port] for port in after if port in paths}) == min(len(set(paths.values())), spare)
    assert covering_ports(paths, after) == after


def test_path_counts_tell_of_pairs_and_leaves() -> None:
    clos, fabric = FakeClos(leaves=3), Fabric()
    clos.tell(fabric, ports=12)
    path_counts = PathCounts(fabric.routes)
    for src, dst in clos.pairs():
        paths = fabric.routes.ports(src.name, dst.address)
        known = path_counts.of(src.name, dst.address)
        assert (known.ports, known.paths) == (12, len(set(paths.values())))
        same = src.leaf == dst.leaf
        assert (known.peer_ports, known.peer_paths) == ((12 * 12, 1) if same else (16 * 12, 4))
        assert known.confidence > 0.99
        assert path_counts.switches(src.name, dst.name) == (1 if same else 3)
    assert path_counts.of("h1/nic0", "192.0.2.1") == Known()
    assert path_counts.switches("h1/nic0", "elsewhere/nic0") is None
    assert path_counts.covered_leaves() == {"10.254.1.1", "10.254.1.2", "10.254.1.3"}
    assert PathCounts(Routes()).of("h1/nic0", "10.2.0.1").confidence == 0.0


def test_paths_that_are_not_known_are_not_counted() -> None:
    clos, fabric = FakeClos(silent={f"10.254.3.{i}" for i in range(1, 5)}), Fabric()
    clos.tell(fabric, ports=12)
    assert PathCounts(fabric.routes).of("h1/nic0", "10.2.0.1") == Known()


@pytest.mark.parametrize(
    "kind", [{}, {"spines": 1}, {"spines": 16}, {"leaves": 4, "pods": 2, "spines": 6}], ids=str
)
def test_ports_are_added_until_every_pair_has_all_paths(kind: dict[str, Any]) -> None:
    clos, orders, fabric = FakeClos(**{"hosts_per_leaf": 2} | kind), Orders(), Fabric()
    in_use = {(src.name, dst.address): [60_001, 60_002] for src, dst in clos.pairs()}
    converge(clos, orders, fabric, in_use)
    path_counts = PathCounts(fabric.routes)
    for pair in in_use:
        known = path_counts.of(*pair)
        assert known.paths == known.peer_paths
        assert known.confidence >= 0.99
    used = {fabric.routes.links[n] for links in fabric.routes.paths.values() for n in links}
    assert used == clos.links()


@pytest.mark.parametrize("spines", [2, 16, 32])
def test_pairs_that_only_probe_need_no_more_paths_than_they_probe(spines: int) -> None:
    clos, orders, fabric = FakeClos(spines=spines, hosts_per_leaf=4), Orders(), Fabric()
    in_use = {(src.name, dst.address): list(range(60_000, 60_008)) for src, dst in clos.pairs()}
    talks = ("h1/nic0", next(dst.address for src, dst in clos.pairs() if src.leaf != dst.leaf))
    converge(clos, orders, fabric, in_use, {pair: 8 for pair in in_use if pair != talks})
    counts = PathCounts(fabric.routes)
    for pair in in_use:
        known = counts.of(*pair)
        needed = known.peer_paths if pair == talks else min(8, known.peer_paths)
        assert known.paths >= needed
        assert not counts.lacks(pair, None if pair == talks else 8)
        assert known.link_confidence >= 0.99
    used = {fabric.routes.links[n] for links in fabric.routes.paths.values() for n in links}
    assert used == clos.links()
    if spines == 32:
        ports = [len(order.sports) for host in orders.by_host.values() for order in host]
        assert np.median(ports) <= 24
        assert max(ports) > 48


def test_what_a_pair_lacks_is_what_its_counts_say() -> None:
    clos, fabric = FakeClos(spines=6, hosts_per_leaf=2), Fabric()
    clos.tell(fabric, ports=5)
    counts = PathCounts(fabric.routes)
    for src, dst in clos.pairs():
        pair = src.name, dst.address
        known = counts.of(*pair)
        is_sure = known.link_confidence >= 0.99
        assert counts.lacks(pair) == (not (is_sure and known.links >= known.peer_links))
        assert counts.lacks(pair, 3) == (not (is_sure and known.paths >= min(3, known.peer_paths)))
    assert not counts.lacks(("h1/nic0", "192.0.2.1"))


@pytest.mark.parametrize(("aggs", "spines"), [(2, 2), (4, 4), (4, 8)])
def test_where_switches_choose_in_turn_all_links_are_found_over_far_fewer_ports_than_paths(
    aggs: int, spines: int
) -> None:
    clos = FakeClos(leaves=4, pods=2, aggs=aggs, spines=spines, meshed=True, hosts_per_leaf=1)
    orders, fabric = Orders(), Fabric()
    converge(clos, orders, fabric, {(src.name, dst.address): [] for src, dst in clos.pairs()})
    used = {fabric.routes.links[n] for links in fabric.routes.paths.values() for n in links}
    assert used == clos.links()
    widest = aggs * spines
    most = max(len(order.sports) for host in orders.by_host.values() for order in host)
    assert most <= _ports_needed(widest, 0.99) + BATCH
    counts = PathCounts(fabric.routes)
    assert all(counts.of(src.name, dst.address).link_confidence >= 0.99 for src, dst in clos.pairs())


def test_a_path_that_comes_back_is_sought_anew() -> None:
    clos, orders, fabric = FakeClos(), Orders(), Fabric()
    in_use: InUse = {(src.name, dst.address): [] for src, dst in clos.pairs()}
    clos.dead |= {("10.254.1.1", "10.254.3.2"), ("10.254.1.1", "10.254.3.3")}
    converge(clos, orders, fabric, in_use)
    clos.dead.clear()
    clos_ports = {order.dst_addr: len(order.sports) for order in orders.by_host["h1"]}
    converge(clos, orders, fabric, in_use)
    assert all(PathCounts(fabric.routes).of(*pair).paths in (1, 4) for pair in in_use)
    after = {order.dst_addr: len(order.sports) for order in orders.by_host["h1"]}
    assert all(after[address] >= count for address, count in clos_ports.items())


def test_where_nobody_answers_a_batch_is_all_that_is_asked() -> None:
    clos, orders, fabric = FakeClos(answer=lambda: False, answers_at_end=False), Orders(), Fabric()
    in_use: InUse = {(src.name, dst.address): [] for src, dst in clos.pairs()}
    assert converge(clos, orders, fabric, in_use) <= 2
    assert {len(order.sports) for host in orders.by_host.values() for order in host} == {BATCH}


def test_orders_are_bounded_and_the_same_after_a_restart() -> None:
    in_use = {("h1/nic0", f"10.2.{i // 200}.{i % 200}"): list(range(50_000, 50_064)) for i in range(300)}
    one, other = Orders(), Orders()
    assert one.update(by_host(in_use), PathCounts(Routes()), {}, owner={})
    assert other.update(by_host(in_use), PathCounts(Routes()), {}, owner={})
    assert one.by_host == other.by_host
    assert not one.update(by_host(in_use), PathCounts(Routes()), {}, owner={})
    assert sum(len(order.sports) for order in one.by_host["h1"]) == MOST_PORTS_A_HOST
    assert one.update({}, PathCounts(Routes()), {}, owner={})
    assert one.by_host == {}


def test_ports_in_use_are_traced_before_further_ones_of_any_pair() -> None:
    pairs = [("h1/nic0", f"10.2.0.{i}") for i in range(200)]
    in_use = {pair: list(range(50_000, 50_016)) for pair in pairs}
    orders = Orders()
    orders.update({"h1": in_use}, PathCounts(Routes()), {}, owner={})
    for plan in orders._plans.values():
        plan.granted = MOST_CANDIDATES
    orders.update({"h1": in_use}, PathCounts(Routes()), {}, owner={})
    traced = {("h1/nic0", order.dst_addr): order.sports for order in orders.by_host["h1"]}
    assert sum(map(len, traced.values())) == MOST_PORTS_A_HOST
    assert all(set(traced[pair]).issuperset(ports) for pair, ports in in_use.items())


def test_a_pair_with_ever_more_paths_is_not_followed_for_ever() -> None:
    clos, orders, fabric = FakeClos(spines=200, hosts_per_leaf=1), Orders(), Fabric()
    in_use: InUse = {(src.name, dst.address): [] for src, dst in clos.pairs()}
    converge(clos, orders, fabric, in_use)
    assert {len(order.sports) for host in orders.by_host.values() for order in host} == {MOST_CANDIDATES}


class Fleet:
    """Members of a fabric in arithmetic, and their discovery."""

    def __init__(self, clos: FakeClos) -> None:
        self.clos = clos
        self.state = FleetState(
            Identity(timeline="t", starts=1), ProbeSettings(degree=4, paths=4), continued=False
        )
        self.now_s = 0.0
        for host, nics in clos.hosts.items():
            described = [
                Nic(ifname=nic.ifname, mac="", ipv4=nic.address, ipv6=None, carrier=True, mode="native")
                for nic in nics
            ]
            hello = Hello(
                host=host,
                boot_id="b",
                version="",
                dataplane_tag="",
                nics=described,
                desired_version=0,
                key_ids=[1],
            )
            self.state.hear_hello(hello, 0.0)
        members = self.state.probeable(0.0)
        self.documents = {d.host: d for d in self.state.schedule(members, self.state.build_graph(members))}

    def run(self, seconds: float) -> int:
        """Agents trace what they are told to; how many documents changed."""
        nic = {nic.name: nic for nic in self.clos.all_nics}
        changed = 0
        for _ in range(round(seconds / ORDER_INTERVAL_S)):
            self.now_s += ORDER_INTERVAL_S
            for host, document in self.documents.items():
                traces = [
                    self.clos.trace(nic[f"{host}/{t.nic}"], nic[self.clos.addresses[t.dst_addr]], sport)
                    for t in document.traces
                    for sport in t.sports
                ]
                self.state.discovery.hear(TraceReport(host=host, traces=traces))
            self.state.note_fabric(self.state.discovery.learn(self.now_s))
            for document in self.state.discover(self.now_s):
                self.documents[document.host] = document
                changed += 1
        return changed


def test_the_mesh_comes_to_probe_every_path_both_ways_and_then_rests() -> None:
    fleet = Fleet(FakeClos())
    fleet.run(40.0)
    routes = fleet.state.fabric.routes
    for document in fleet.documents.values():
        for edge in document.probes:
            paths = routes.ports(edge.src, edge.dst_addr)
            back = routes.ports(edge.dst, edge.src_addr)
            assert len({paths[port] for port in edge.sports}) == min(4, len(set(paths.values())))
            assert len({back[port] for port in edge.reply_sports}) == min(4, len(set(back.values())))
            mirrored = next(
                e for e in fleet.documents[edge.dst.partition("/")[0]].probes if e.dst == edge.src
            )
            assert (mirrored.sports, mirrored.reply_sports) == (edge.reply_sports, edge.sports)
    assert fleet.run(20.0) == 0


def test_a_manager_that_starts_anew_chooses_the_same_ports() -> None:
    fleet, other = Fleet(FakeClos(spines=3)), Fleet(FakeClos(spines=3))
    fleet.run(40.0)
    for host in fleet.clos.hosts:
        nic = {nic.name: nic for nic in fleet.clos.all_nics}
        traces = [
            fleet.clos.trace(nic[f"{host}/{o.nic}"], nic[fleet.clos.addresses[o.dst_addr]], sport)
            for o in fleet.documents[host].traces
            for sport in o.sports
        ]
        random.Random(host).shuffle(traces)
        other.state.discovery.hear(TraceReport(host=host, traces=traces))
    other.state.discovery.learn(0.0)
    members = other.state.probeable(0.0)
    documents = {d.host: d for d in other.state.schedule(members, other.state.build_graph(members))}
    assert {h: d.probes for h, d in documents.items()} == {h: d.probes for h, d in fleet.documents.items()}


def test_ports_are_not_chosen_while_paths_keep_coming_in() -> None:
    fleet = Fleet(FakeClos())
    discovery = fleet.state.discovery
    fleet.run(1.0)
    assert not discovery.is_mesh_due(fleet.now_s)
    discovery.learn(fleet.now_s)
    assert not discovery.is_mesh_due(fleet.now_s + CALM_S / 2)
    assert discovery.is_mesh_due(fleet.now_s + 2 * CALM_S)
    assert not discovery.is_mesh_due(fleet.now_s + 3 * CALM_S)


def test_a_set_aside_host_is_an_event() -> None:
    fleet = Fleet(FakeClos())
    honest = fleet.clos.trace

    def trace(src: FakeNic, dst: FakeNic, sport: int) -> Trace:
        told = honest(src, dst, sport)
        return replace(told, hops=["6.6.6.6", *told.hops[1:]]) if src.host == "h2" else told

    fleet.clos.trace = trace  # type: ignore[method-assign]
    fleet.run(90.0)
    assert [(e.host, e.kind) for e in fleet.state.events if e.kind.startswith("paths")] == [
        ("h2", "paths_set_aside")
    ]


def told_of_wiring(fleet: Fleet) -> list[tuple[str, str | None, str]]:
    return [(e.host, e.nic, e.kind) for e in fleet.state.events if e.kind.startswith("miswired")]


@pytest.mark.parametrize("nics", [1, 2])
def test_a_nic_in_the_wrong_port_is_one_event_with_a_start_and_an_end(nics: int) -> None:
    fleet = Fleet(FakeClos(leaves=3, hosts_per_leaf=2, nics=nics))
    fleet.run(20.0)
    assert told_of_wiring(fleet) == []
    own, *others = fleet.clos.hosts["h3"]
    fleet.clos.hosts["h3"] = [dataclasses.replace(own, leaf=(own.leaf + nics) % 3), *others]
    fleet.run(20.0)
    assert told_of_wiring(fleet) == [("h3", "nic0", "miswired")]
    fleet.clos.hosts["h3"] = [own, *others]
    fleet.run(20.0)
    assert told_of_wiring(fleet) == [("h3", "nic0", "miswired"), ("h3", "nic0", "miswired_over")]


def test_steered_pairs_and_pairs_with_traffic_are_traced_and_strangers_are_not() -> None:
    members = Members()
    for host, address in (("a", "10.1.0.1"), ("b", "10.2.0.1")):
        nic = Nic(ifname="nic0", mac="", ipv4=address, ipv6=None, carrier=True, mode="native")
        hello = Hello(
            host=host,
            boot_id="b",
            version="",
            dataplane_tag="",
            nics=[nic],
            desired_version=0,
            key_ids=[],
        )
        members.hear(hello, 0.0)
    steering = SteerTable(None)
    steering.set(
        SteerOverride(host="a", nic="nic0", dst="10.2.0.1", qpn=7, sport=50_001, backup_sport=50_002)
    )
    steering.set(SteerOverride(host="a", nic="nic0", dst="192.0.2.7", qpn=7, sport=50_003))
    discovery = Discovery(members, Traffic(members), steering)
    discovery.learn(0.0)
    assert _order(discovery, {}, 0.0)
    [order] = discovery.orders["a"]
    assert (order.nic, order.dst_addr, order.sports[:2]) == ("nic0", "10.2.0.1", [50_001, 50_002])
    assert len(order.sports) == BATCH
    assert not _order(discovery, {}, 10.0)


def _order(discovery: Discovery, edges: dict[str, list[ProbeEdge]], now_s: float) -> bool:
    """Whether anything has changed."""
    due = discovery.orders_due(edges, now_s)
    return due is not None and discovery.order_anew(due)


def test_ports_that_are_chosen_while_a_thread_makes_orders_are_not_forgotten() -> None:
    members = Members()
    for host, address in (("a", "10.1.0.1"), ("b", "10.2.0.1")):
        nic = Nic(ifname="nic0", mac="", ipv4=address, ipv6=None, carrier=True, mode="native")
        said = Hello(
            host=host, boot_id="b", version="", dataplane_tag="", nics=[nic], desired_version=0, key_ids=[]
        )
        members.hear(said, 0.0)
    discovery = Discovery(members, Traffic(members), SteerTable(None))
    discovery.learn(0.0)
    due = discovery.orders_due({}, 0.0)
    assert due is not None
    discovery.choose("a/nic0", "10.2.0.1", [50_001, 50_002])
    assert not discovery.order_anew(due)
    edge = ProbeEdge(
        src="a/nic0",
        dst="b/nic0",
        src_addr="10.1.0.1",
        dst_addr="10.2.0.1",
        sports=[50_005],
        reply_sports=[50_006],
        pairs_per_s=1.0,
    )
    assert _order(discovery, {"a": [edge]}, 10.0)
    assert {50_001, 50_002, 50_005} <= set(discovery.orders["a"][0].sports)


def test_reports_that_come_too_fast_are_dropped_and_counted() -> None:
    members = Members()
    discovery = Discovery(members, Traffic(members), SteerTable(None))
    for _ in range(MOST_PENDING + 5):
        discovery.hear(TraceReport(host="a", traces=[]))
    assert discovery.dropped == 5


def test_plain_routes_answer_like_packed_ones() -> None:
    links = (DirectedLink("a/nic0", "l1"), DirectedLink("l1", "b/nic0"))
    routes = Routes(1, links, {PathName("a/nic0", "10.2.0.1", 50_000): (0, 1)})
    assert routes.ports("a/nic0", "10.2.0.1") == {50_000: (0, 1)}
    assert list(routes.pairs()) == [("a/nic0", "10.2.0.1")]


def _taken_over(fleet: Fleet, *, paths: int) -> tuple[FleetState, dict[str, Desired]]:
    """A manager that knows no paths takes over; with the documents that it writes first."""
    settings = ProbeSettings(degree=4, paths=paths)
    state = FleetState(Identity(timeline="t", starts=2), settings, continued=False)
    state.stand_by()
    for host, document in fleet.documents.items():
        said = fleet.state.members.hosts[host].hello
        state.hear_hello(replace(said, desired_version=document.version), 0.0)
    state.lead(0.0, Leader(7), timeline="t", others_led=True)
    for host, document in fleet.documents.items():
        assert state.take_up(host, document, 0.0)
    state.discovery.learn(0.0)
    members = state.probeable(0.0)
    documents = state.schedule(members, state.build_graph(members))
    return state, {document.host: document for document in documents}


@pytest.mark.parametrize("paths", [2, 6])
def test_a_manager_with_other_settings_takes_over_and_goes_by_them(paths: int) -> None:
    fleet = Fleet(FakeClos())
    fleet.run(40.0)
    _, told = _taken_over(fleet, paths=paths)
    for document in told.values():
        assert {len(edge.sports) for edge in document.probes} == {paths}


@pytest.mark.parametrize("spines", [2, 3, 8])
def test_a_takeover_leaves_hosts_to_trace_and_probe_what_they_do(spines: int) -> None:
    """The documents of a manager that knows no paths yet differ from those of before in their epoch alone, once."""
    clos = FakeClos(spines=spines)
    fleet = Fleet(clos)
    fleet.run(40.0)
    assert all(document.traces for document in fleet.documents.values())
    state, told = _taken_over(fleet, paths=4)
    assert told == {
        host: replace(document, epoch=7, version=document.version + 1)
        for host, document in fleet.documents.items()
    }
    for turn in range(1, 9):
        state.discovery.learn(turn * ORDER_INTERVAL_S)
        assert state.discover(turn * ORDER_INTERVAL_S) == []
