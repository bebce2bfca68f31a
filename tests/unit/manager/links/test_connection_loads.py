"""TCP connections' loads beside those of queue pairs."""

import itertools

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.links.connections import HOLDS_S, UNSETTLED_S, ConnectionLoads
from manager.placement.flows import Flows, QpName

SRC, DST = "h1/nic0", "tcp:10.2.0.1"
WAY_A = ("h1/nic0", "leaf1", "spine1", "leaf2", "h2/nic0")
WAY_B = ("h1/nic0", "leaf1", "spine2", "leaf2", "h2/nic0")
LINKS = tuple(dict.fromkeys(DirectedLink(a, b) for way in (WAY_A, WAY_B) for a, b in itertools.pairwise(way)))
NOTHING = np.zeros(len(LINKS))
SURE = np.ones(len(LINKS), bool)


def crossed(way: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(LINKS.index(DirectedLink(a, b)) for a, b in itertools.pairwise(way))


ROUTES = Routes(
    version=1,
    links=LINKS,
    paths={PathName(SRC, DST, 50_000): crossed(WAY_A), PathName(SRC, DST, 50_001): crossed(WAY_B)},
)


def flows(*sent: tuple[int, int, float]) -> Flows:
    """Connections by number, source port and bit/s."""
    return Flows(
        names=[QpName("h1", "nic0", DST, number) for number, _, _ in sent],
        dst=["h2/nic0"] * len(sent),
        sport=np.array([sport for _, sport, _ in sent], np.int64),
        rate_bps=np.array([rate for _, _, rate in sent]),
        small=np.zeros(len(sent), bool),
    )


def over(*ways: tuple[tuple[str, ...], float]) -> NDArray[np.float64]:
    load = np.zeros(len(LINKS))
    for way, bps in ways:
        load[list(crossed(way))] += bps
    return load


def test_connections_add_to_what_queue_pairs_send() -> None:
    loads = ConnectionLoads()
    sent = flows((1, 50_000, 4e9), (2, 50_000, 1e9), (3, 50_001, 2e9))
    for now_s in (0.0, UNSETTLED_S):
        loads.see(sent, now_s)
    load, is_sure = loads.added(ROUTES, NOTHING + 1e9, SURE, UNSETTLED_S)
    assert (load == over((WAY_A, 5e9), (WAY_B, 2e9)) + 1e9).all()
    assert is_sure.all()


def test_what_was_not_sure_is_not_so_with_them() -> None:
    loads = ConnectionLoads()
    for now_s in (0.0, UNSETTLED_S):
        loads.see(flows((1, 50_000, 1e9)), now_s)
    assert not loads.added(ROUTES, NOTHING, ~SURE, UNSETTLED_S)[1].any()


def test_one_that_has_begun_or_moved_leaves_in_doubt_what_it_may_cross() -> None:
    loads = ConnectionLoads()
    loads.see(flows((1, 50_000, 1e9)), 0.0)
    assert not loads.added(ROUTES, NOTHING, SURE, 0.5)[1].any()
    loads.see(flows((1, 50_000, 1e9)), UNSETTLED_S)
    assert loads.added(ROUTES, NOTHING, SURE, UNSETTLED_S)[1][list(crossed(WAY_A))].all()
    loads.see(flows((1, 50_001, 1e9)), UNSETTLED_S + 1)
    load, is_sure = loads.added(ROUTES, NOTHING, SURE, UNSETTLED_S + 1)
    assert (load == over((WAY_B, 1e9))).all()
    assert not is_sure.any()


def test_one_whose_path_is_unknown_is_no_load_and_leaves_doubt() -> None:
    loads = ConnectionLoads()
    for now_s in (0.0, UNSETTLED_S):
        loads.see(flows((1, 0, 1e9), (2, 50_000, 100e9)), now_s)
    load, is_sure = loads.added(ROUTES, NOTHING, SURE, UNSETTLED_S)
    assert (load == over((WAY_A, 100e9))).all()
    assert is_sure.tolist() == [bool(bps) for bps in load]


def test_nobody_knows_a_path_of_it() -> None:
    loads = ConnectionLoads()
    loads.see(flows((1, 0, 1e9)), 0.0)
    load, is_sure = loads.added(Routes(), np.zeros(0), np.zeros(0, bool), 0.0)
    assert len(load) == len(is_sure) == 0


def test_what_was_said_long_ago_counts_no_more() -> None:
    loads = ConnectionLoads()
    loads.see(flows((1, 50_000, 1e9)), 0.0)
    load, is_sure = loads.added(ROUTES, NOTHING, SURE, HOLDS_S + 0.1)
    assert not load.any()
    assert is_sure.all()
