"""Loads and capacities of links, by the queue pairs over them, and how sure they are."""

from dataclasses import replace

import numpy as np
import pytest
from fabric_fakes import one_pair

from cwdp.shared.bus.records import EGRESS, INGRESS, QP_ROW, WINDOW_NS, packed_address
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.links.loads import CARRIES_LOOKS, Capacities, likely_bps, tiers
from manager.links.meter import LoadMeter
from manager.queue_pairs.counters import SILENT_S, NicReport, QueuePairStore
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

OWNER = {"10.0.0.2": "b/0"}


def _traffic(rate_bps: float, sports: list[int]) -> QueuePairStore:
    store = QueuePairStore()
    rows = np.zeros(len(sports), QP_ROW)
    rows["addr"], rows["direction"] = list(packed_address("10.0.0.2")), EGRESS
    rows["qpn"], rows["sport"] = np.arange(len(sports)), sports
    for second in range(2):
        rows["bytes"] = second * rate_bps / 8
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=second * 10**9, now_s=float(second))
    return store


def test_the_load_of_a_link_is_that_of_the_queue_pairs_over_it() -> None:
    meter = LoadMeter(one_pair(), OWNER)
    load, _ = meter.measure(_traffic(1e6, [50_000, 50_000, 50_001]).tables.items(), 1.0)
    assert load.tolist() == [3e6, 2e6, 1e6, 2e6, 1e6, 3e6]
    moved, _ = meter.measure(_traffic(1e6, [50_001, 50_000, 50_001]).tables.items(), 1.0)
    assert moved.tolist() == [3e6, 1e6, 2e6, 1e6, 2e6, 3e6]
    assert meter.measure(_traffic(1e6, [50_000]).tables.items(), 100.0)[0].tolist() == [0.0] * 6


def test_an_unknown_port_counts_in_equal_parts_for_all_known_paths() -> None:
    load = LoadMeter(one_pair(), OWNER).measure(_traffic(4e6, [7]).tables.items(), 1.0)[0]
    assert load.tolist() == [4e6, 2e6, 2e6, 2e6, 2e6, 4e6]


def test_a_load_is_not_sure_where_a_queue_pair_may_cross_whose_path_is_not_known() -> None:
    store = _traffic(1e6, [50_000, 7])
    sure = LoadMeter(one_pair(), OWNER).measure(store.tables.items(), 1.0)[1]
    assert sure.tolist() == [True, False, False, False, False, True]
    assert LoadMeter(one_pair(), OWNER).measure(_traffic(1e6, [50_000]).tables.items(), 1.0)[1].all()


def test_a_load_is_not_sure_where_a_queue_pair_of_an_unknown_pair_starts_or_ends() -> None:
    store = _traffic(1e6, [50_000])
    rows = store.tables["a", "0"].rows.copy()
    rows["addr"], rows["qpn"] = list(packed_address("10.0.0.9")), 99
    for second in range(2):
        rows["bytes"] = second * 1_000_000
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=second * 10**9, now_s=1.0)
    sure = LoadMeter(one_pair(), OWNER | {"10.0.0.9": "c/0"}).measure(store.tables.items(), 1.0)[1]
    assert sure.tolist() == [True, False, False, True, True, True]


def test_a_load_is_not_sure_for_a_while_after_a_queue_pair_has_moved() -> None:
    store, meter = _traffic(1e6, [50_000]), LoadMeter(one_pair(), OWNER)
    rows = store.tables["a", "0"].rows.copy()
    rows["sport"], rows["bytes"] = 50_001, 250_000
    store.hear([NicReport(("a", "0"), rows)], local_ns=2 * 10**9, now_s=2.0)
    load, sure = meter.measure(store.tables.items(), 2.0)
    assert load.tolist() == [1e6, 0.0, 1e6, 0.0, 1e6, 1e6]
    assert sure.tolist() == [True, False, False, False, False, True]
    settled_s = 2.0 + store.tables["a", "0"].stopped_after_s
    rows["bytes"] += 125_000
    store.hear([NicReport(("a", "0"), rows)], local_ns=3 * 10**9, now_s=3.0)
    assert not meter.measure(store.tables.items(), 3.0)[1].all()
    assert meter.measure(store.tables.items(), settled_s)[1].all()


def test_a_queue_pair_that_has_stopped_loads_nothing_and_leaves_a_doubt_for_a_while() -> None:
    store = _traffic(1e6, [50_000, 50_001])
    rows = store.tables["a", "0"].rows[:1].copy()
    for quarter in range(1, 14):
        rows["bytes"] = 125_000 + quarter * 31_250
        local_ns, now_s = 10**9 + quarter * 250_000_000, 1.0 + quarter / 4
        store.hear([NicReport(("a", "0"), rows.copy())], local_ns=local_ns, now_s=now_s)
        load, sure = LoadMeter(one_pair(), OWNER).measure(store.tables.items(), now_s)
        assert load[1] == pytest.approx(1e6)
        assert load[2] == pytest.approx(1e6 if quarter < 3 else 0.0)
        assert sure[2] == (quarter < 3 or now_s - 1.0 >= 2 * store.tables["a", "0"].stopped_after_s)


def test_a_load_is_not_sure_until_a_queue_pair_that_begins_again_has_sent_for_a_whole_report() -> None:
    store, meter = _traffic(1e6, [50_000]), LoadMeter(one_pair(), OWNER)
    rows = store.tables["a", "0"].rows.copy()
    for second, sent, is_sure in ((6, 0, True), (7, 30_000, False), (8, 125_000, True)):
        rows["bytes"] += sent
        told = rows.copy() if sent else np.zeros(0, QP_ROW)
        store.hear([NicReport(("a", "0"), told)], local_ns=second * 10**9, now_s=float(second))
        load, sure = meter.measure(store.tables.items(), float(second))
        assert load[1] == pytest.approx(8 * sent)
        assert sure[1] == is_sure


def test_a_nic_that_says_nothing_leaves_the_loads_of_its_links_in_doubt_its_own_included() -> None:
    store = _traffic(1e6, [50_000, 50_001])
    assert LoadMeter(one_pair(), OWNER).measure(store.tables.items(), 1.0)[1].all()
    silent_s = 1.0 + store.tables["a", "0"].interval_s + SILENT_S
    load, sure = LoadMeter(one_pair(), OWNER).measure(store.tables.items(), silent_s)
    assert load.tolist() == [2e6, 1e6, 1e6, 1e6, 1e6, 2e6]
    assert not sure.any()
    assert not LoadMeter(one_pair(), OWNER).measure(store.tables.items(), 60.0)[1].any()
    nothing = np.zeros(0, QP_ROW)
    for second in range(60, 64):
        store.hear([NicReport(("a", "0"), nothing)], local_ns=second * 10**9, now_s=float(second))
    assert LoadMeter(one_pair(), OWNER).measure(store.tables.items(), 64.0)[1].all()


def test_a_nic_that_says_nothing_and_whose_paths_are_not_known_leaves_its_own_link_in_doubt_as_well() -> None:
    routes = Routes(1, one_pair().links, {PathName("b/0", "10.0.0.1", 1): (0,)})
    store = _traffic(1e6, [50_000])
    assert not LoadMeter(routes, OWNER).measure(store.tables.items(), 60.0)[1][[0, 5]].any()


def test_what_a_host_sent_that_is_gone_is_no_load_and_leaves_those_of_its_links_in_doubt() -> None:
    """Its agent is put out, its programs may go on."""
    store = _traffic(1e6, [50_000])
    store.depart("a")
    load, sure = LoadMeter(one_pair(), OWNER).measure(store.loading.items(), 1.0)
    assert load.tolist() == [0.0] * 6
    assert not sure.any()


@pytest.mark.parametrize("received_bps", [0.0, 1e6])
def test_what_others_receive_of_a_nic_that_says_nothing_leaves_its_links_in_doubt(
    received_bps: float,
) -> None:
    """A host that was away since before it began to send: none of what it sends was ever told."""
    store = _traffic(0.0, [50_000])
    store.depart("a")
    received = np.zeros(1, QP_ROW)
    received["addr"], received["direction"] = list(packed_address("10.0.0.1")), INGRESS
    for second in range(2, 4):
        received["bytes"] = second * received_bps / 8
        report = NicReport(("b", "0"), received.copy())
        store.hear([report], local_ns=second * 10**9, now_s=float(second))
    owner = OWNER | {"10.0.0.1": "a/0"}
    load, sure = LoadMeter(one_pair(), owner).measure(store.loading.items(), 3.0)
    assert not load.any()
    assert sure.tolist() == [received_bps == 0.0] * 6
    sending = np.zeros(1, QP_ROW)
    sending["addr"], sending["direction"], sending["sport"] = (
        list(packed_address("10.0.0.2")),
        EGRESS,
        50_000,
    )
    for second in range(2):
        sending["bytes"] = second * received_bps / 8
        store.hear([NicReport(("a", "0"), sending.copy())], local_ns=second * 10**9, now_s=3.0)
    assert LoadMeter(one_pair(), owner).measure(store.loading.items(), 3.0)[1].all()


def test_a_queue_pair_that_was_heard_of_once_leaves_loads_in_doubt() -> None:
    store = QueuePairStore()
    rows = np.zeros(1, QP_ROW)
    rows["addr"], rows["direction"], rows["sport"] = list(packed_address("10.0.0.2")), EGRESS, 50_000
    store.hear([NicReport(("a", "0"), rows)], local_ns=0, now_s=0.0)
    load, sure = LoadMeter(one_pair(), OWNER).measure(store.tables.items(), 0.0)
    assert load.tolist() == [0.0] * 6
    assert sure.tolist() == [True, False, False, False, False, True]


def test_a_capacity_is_what_a_full_link_carries_and_the_rest_of_its_tier_is_likely_to() -> None:
    links = one_pair().links
    capacities = Capacities()
    load, full = np.array([9.0, 5, 1, 5, 1, 9]), np.array([False, True, False, False, False, False])
    sure = np.ones(len(links), bool)
    capacities.learn(links, load, stands=full, is_sure=sure)
    known = capacities.known_bps(links)
    assert known[1] == 5.0
    assert np.isnan(np.delete(known, 1)).all()
    likely = likely_bps(known, load, tiers(links))
    assert likely[1:3].tolist() == [5.0, 5.0]
    assert np.isnan(likely[[0, 3, 4, 5]]).all()
    for _ in range(60):
        capacities.learn(links, np.where(full, 2.0, load), stands=full, is_sure=sure)
    assert capacities.known_bps(links)[1] == pytest.approx(2.0, rel=0.02)


def test_a_link_that_carries_more_without_a_queue_than_it_was_seen_full_with_can_carry_that() -> None:
    links, capacities = one_pair().links, Capacities()
    full = np.array([i == 1 for i in range(len(links))])
    sure, nobody = np.ones(len(links), bool), np.zeros(len(links), bool)
    load = np.full(len(links), 6.0)
    capacities.learn(links, load, stands=full, is_sure=sure)
    for more, is_sure, expected in ((6.3, sure, 6.0), (12.0, nobody, 6.0), (12.0, sure, 12.0)):
        for _ in range(CARRIES_LOOKS):
            assert capacities.known_bps(links)[1] == 6.0
            capacities.learn(links, np.where(full, more, load), stands=nobody, is_sure=is_sure)
        assert capacities.known_bps(links)[1] == expected
    assert np.isnan(capacities.known_bps(links)[2:]).all()


def test_what_a_link_carries_for_a_moment_before_its_queue_shows_is_no_capacity() -> None:
    links, capacities = one_pair().links, Capacities()
    full = np.array([i == 1 for i in range(len(links))])
    sure, load = np.ones(len(links), bool), np.full(len(links), 6.0)
    for _ in range(10):
        capacities.learn(links, load, stands=full, is_sure=sure)
        for _ in range(CARRIES_LOOKS - 1):
            capacities.learn(links, 2 * load, stands=~sure, is_sure=sure)
    assert capacities.known_bps(links)[1] == 6.0


def test_tiers_tell_access_up_spine_and_down_apart() -> None:
    assert tiers(one_pair().links).tolist() == [1, 5, 5, 7, 7, 3]


def test_a_leaf_that_does_not_answer_is_no_nic() -> None:
    """It is named after a NIC below it, slash and all."""
    silent = {"l1": "?a/0", "l2": "?b/0"}
    links = [DirectedLink(silent.get(a, a), silent.get(b, b)) for a, b in one_pair().links]
    assert tiers(links).tolist() == tiers(one_pair().links).tolist()


def test_other_routes_keep_what_is_remembered_of_links() -> None:
    bench = Bench(LeafSpine(Shape(leaves=2, spines=2, hosts_per_leaf=2), np.random.default_rng(1)))
    for _ in bench.run(20, Trouble(saturated={2})):
        pass
    before = bench.watch.loads
    routes = bench.fabric.routes
    bench.fabric.routes = replace(routes, version=2, links=(*routes.links, DirectedLink("x", "y")))
    for _ in bench.run(2, Trouble(saturated={2})):
        pass
    after = bench.watch.loads
    assert len(after.queue_ns) == len(before.queue_ns) + 1
    assert after.queue_p99_ns[2] >= before.queue_p50_ns[2]
    assert np.isnan(after.queue_ns[-1])
    assert bench.time_s * 1e9 > WINDOW_NS
