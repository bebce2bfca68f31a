"""How pairs of ports over InfiniBand come to be spread: from what agents tell to the tables that programs at both ends draw from."""

import re
from random import Random

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from ib_fleets import LINK_BPS, NIC, Fleet

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from manager.history.queries import CHANGES
from manager.ib.spreading import CALM_S, MISSING_S, QUIET_S, SETTLED_S
from manager.view import ib_views, qp_views
from tests.unit.manager.ib.ib_worlds import clos, cut, port

BEGIN_S = QUIET_S + SETTLED_S + 3.0


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.run(BEGIN_S)
    return made


def are_alike(fleet: Fleet) -> bool:
    """Whether the two hosts of each pair were told the same, or both nothing."""
    for one in fleet.row:
        for other in fleet.row:
            there, back = fleet.spread(one, other), fleet.spread(other, one)
            if (there is None) != (back is None):
                return False
            if (
                there
                and back
                and (there.shares, _numbers(fleet, one, other)) != (back.shares, _numbers(fleet, other, one))
            ):
                return False
    return True


def _numbers(fleet: Fleet, src: str, dst: str) -> list[int]:
    spread = fleet.spread(src, dst)
    assert spread is not None
    assert spread.lids is not None
    return [dlid - spread.lids.lid for dlid in spread.sports]


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Of hosts below different leaves, as many of each leaf as of any other."""
    random = Random(seed)
    leaves = [(n % 4, (n + 1 + n // 4 % 3) % 4) for n in range(count)]
    return [(f"h{4 * a + random.randrange(4)}", f"h{4 * b + random.randrange(4)}") for a, b in leaves]


def test_both_hosts_of_each_pair_are_told_the_same_once_they_are_quiet() -> None:
    fleet = Fleet()
    fleet.run(QUIET_S - 1)
    assert fleet.spread("h0", "h5") is None
    fleet.run(BEGIN_S)
    spread = fleet.spread("h0", "h5")
    assert spread is not None
    assert (spread.nic, spread.lids, spread.shares) == (NIC, fleet.lids("h5"), [])
    assert spread.sports == [fleet.lids("h5").lid + k for k in range(4)]
    assert fleet.spread("h0", "h1") is None, "below one leaf there is one way"
    assert are_alike(fleet)
    assert len(fleet.documents["h0"].spreads) == 12
    assert fleet.state.ib_spreads.counters["first"] == 16 * 12 // 2


def test_hosts_are_told_nothing_new_while_nothing_changes(fleet: Fleet) -> None:
    assert fleet.run(60.0) == set()


@pytest.mark.parametrize("seed", range(2))
def test_connections_made_one_after_another_come_near_the_best_placement(fleet: Fleet, seed: int) -> None:
    """64 connections of eight queue pairs each; the manager sees what those before send."""
    bps = LINK_BPS / 128
    for src, dst in pairs(64, seed):
        for _ in range(8):
            fleet.connect(src, dst, bps)
        fleet.run(CALM_S + 2, step_s=4.0)
    loads = fleet.between_switches()
    best_bps = 2 * 64 * 8 * bps / 16
    assert loads.sum() == pytest.approx(2 * 2 * 64 * 8 * bps)
    assert loads.max() <= 1.1 * best_bps


def test_new_connections_go_where_there_is_room_and_no_host_is_told_of_small_things(fleet: Fleet) -> None:
    spine = int(np.flatnonzero(fleet.subnet.ports["node"] == 0)[2])
    fleet.loads_bps[spine] = 0.03 * LINK_BPS
    assert fleet.run(CALM_S + 60) == set()
    up = port(fleet.subnet, "l0", 5)
    fleet.loads_bps[up] = 0.9 * LINK_BPS
    assert fleet.run(CALM_S + 30)
    spread = fleet.spread("h0", "h5")
    assert spread is not None
    assert spread.shares[0] < 0.5 == min(spread.shares[1:]) / 2
    assert are_alike(fleet)
    changes = fleet.state.ib_spreads.counters["loads"]
    assert 4 * 12 <= changes <= 2 * 4 * 12, "as the average rises"
    other = fleet.spread("h4", "h8")
    assert other is not None
    assert other.shares == []


def test_nothing_changes_for_hosts_that_connect_something(fleet: Fleet) -> None:
    fleet.loads_bps[port(fleet.subnet, "l0", 5)] = 0.9 * LINK_BPS
    for _ in range(12):
        fleet.connect("h0", "h15")
        fleet.run(QUIET_S / 2)
    busy, quiet = fleet.spread("h0", "h5"), fleet.spread("h1", "h5")
    assert busy is not None
    assert busy.shares == []
    assert quiet is not None
    assert quiet.shares != []
    fleet.run(QUIET_S + CALM_S)
    later = fleet.spread("h0", "h5")
    assert later is not None
    assert later.shares == quiet.shares


def test_once_there_is_room_everywhere_all_paths_are_about_alike_again(fleet: Fleet) -> None:
    fleet.loads_bps[port(fleet.subnet, "l0", 5)] = 0.9 * LINK_BPS
    fleet.run(CALM_S + 30)
    fleet.loads_bps[:] = 0.0
    fleet.run(60 + CALM_S)
    spread = fleet.spread("h0", "h5")
    assert spread is not None
    assert min(spread.shares, default=1.0) > 0.7


def test_bursts_are_averaged(fleet: Fleet) -> None:
    up = port(fleet.subnet, "l0", 5)
    told: set[str] = set()
    for second in range(200):
        fleet.loads_bps[up] = 0.9 * LINK_BPS if second % 4 == 0 else 0.0
        told |= fleet.run(1.0)
    changes = fleet.state.ib_spreads.counters["loads"]
    assert changes <= 2 * 4 * 12


def test_a_path_without_a_route_is_taken_off_at_both_ends_once_the_sweep_is_over(fleet: Fleet) -> None:
    fleet.connect("h0", "h5")
    fleet.read(cut(fleet.subnet, port(fleet.subnet, "l0", 5)))
    assert fleet.run(SETTLED_S - 1) == set()
    fleet.run(4.0)
    assert _numbers(fleet, "h0", "h5") == [1, 2, 3], "at once, though they are not quiet"
    assert are_alike(fleet)
    fleet.read(clos())
    fleet.run(BEGIN_S)
    assert _numbers(fleet, "h0", "h5") == [0, 1, 2, 3]


def test_other_lids_are_told_to_all(fleet: Fleet) -> None:
    fleet.read(clos(lmc=3))
    fleet.run(SETTLED_S + 3)
    spread = fleet.spread("h0", "h5")
    assert spread is not None
    assert (spread.lids, len(spread.sports)) == (fleet.lids("h5"), 8)
    assert fleet.lids("h5").lmc == 3


def test_only_hosts_take_part_that_have_it_configured() -> None:
    fleet = Fleet(without=("h5",))
    fleet.run(BEGIN_S)
    assert fleet.spread("h0", "h5") is None
    assert fleet.documents["h5"].spreads == []
    assert fleet.spread("h0", "h6") is not None


def test_hosts_that_only_observe_take_no_part() -> None:
    fleet = Fleet()
    plain = fleet.hello
    fleet.hello = lambda host: msgspec.structs.replace(plain(host), observe_only=host == "h5")  # type: ignore[method-assign]
    fleet.run(BEGIN_S)
    assert fleet.spread("h0", "h5") is None
    assert fleet.spread("h0", "h6") is not None


def test_a_host_that_has_it_no_more_is_taken_out_at_both_ends(fleet: Fleet) -> None:
    fleet.without.add("h5")
    fleet.run(MISSING_S - 2)
    assert fleet.spread("h0", "h5") is not None, "its agent may just begin anew"
    fleet.run(4.0)
    assert fleet.spread("h0", "h5") is None
    assert fleet.documents["h5"].spreads == []
    assert are_alike(fleet)
    assert fleet.state.ib_spreads.counters["gone"] == 12


def test_a_host_that_is_silent_keeps_what_it_has_and_so_do_its_peers(fleet: Fleet) -> None:
    fleet.loads_bps[port(fleet.subnet, "l1", 5)] = 0.9 * LINK_BPS
    fleet.run(CALM_S + 60, silent=("h5",))
    silent, up = fleet.spread("h0", "h5"), fleet.spread("h0", "h6")
    assert silent is not None
    assert silent.shares == []
    assert up is not None
    assert up.shares != []
    assert are_alike(fleet)


def test_a_port_that_two_hosts_claim_is_nobodys(fleet: Fleet) -> None:
    plain = fleet.addr
    fleet.addr = lambda host: plain("h5" if host == "h6" else host)  # type: ignore[method-assign]
    fleet.run(MISSING_S + 2)
    assert fleet.state.ib_spreads.ports.unusable["claimed_twice"] == 1
    assert fleet.spread("h0", "h5") is None


def test_ports_whose_lids_are_others_in_the_subnet_wait() -> None:
    fleet = Fleet()
    plain = fleet.lids
    fleet.lids = lambda host: plain("h7" if host == "h5" else host)  # type: ignore[method-assign]
    fleet.run(BEGIN_S)
    assert fleet.state.ib_spreads.ports.unusable["lids_differ"] == 1
    assert fleet.documents["h5"].spreads == []


def test_without_a_subnet_that_is_read_nothing_is_told() -> None:
    fleet = Fleet()
    fleet.state.subnets._readers.clear()
    fleet.number += 1
    fleet.run(BEGIN_S)
    assert fleet.state.ib_spreads.ports.unusable["elsewhere"] == 16
    assert all(document.spreads == [] for document in fleet.documents.values())


def test_in_a_large_subnet_pairs_are_spread_that_have_queue_pairs() -> None:
    fleet = Fleet(clos(leaves=5, hosts=14))
    fleet.run(BEGIN_S)
    assert all(document.spreads == [] for document in fleet.documents.values())
    fleet.connect("h0", "h40")
    fleet.run(QUIET_S + 2)
    assert {host for host, document in fleet.documents.items() if document.spreads} == {"h0", "h40"}
    fleet.qps = {host: [] for host in fleet.qps}
    for host in fleet.qps:
        fleet.tell_queue_pairs(host)
    fleet.read(cut(fleet.subnet, port(fleet.subnet, "l0", 15)))
    fleet.run(SETTLED_S + 3)
    assert _numbers(fleet, "h0", "h40") == [1, 2, 3], "also once they have none any more"
    assert are_alike(fleet)


def test_a_planner_that_is_off_tells_nothing() -> None:
    fleet = Fleet(enabled=False)
    fleet.run(BEGIN_S)
    assert all(document.spreads == [] for document in fleet.documents.values())


def test_shares_are_shown_beside_paths(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    state = fleet.state
    fleet.loads_bps[port(fleet.subnet, "l0", 5)] = 0.9 * LINK_BPS
    fleet.run(CALM_S + 30)
    (pair,) = ib_views.pairs(state.subnets, "h0", "h5", state.ib_spreads.shares)
    shares = [way["share"] for way in pair["ports"]]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] < min(shares[1:]) / 2
    monkeypatch.setattr(ManagerClient, "get", lambda *_: {"pairs": [pair]})
    text = (
        CliRunner()
        .invoke(main, ["path", "h0", "h5", "--manager", "unix:///nowhere"], env={"COLUMNS": "200"})
        .output
    )
    assert re.search(rf"DLID +use +new +switches.*\n.*primary +{shares[0]:.0%} ", text)
    (pair,) = ib_views.pairs(state.subnets, "h0", "h1", state.ib_spreads.shares)
    assert [way["share"] for way in pair["ports"]] == [None] * 4


def test_queue_pairs_are_shown_with_their_lids_and_moved_by_nothing(fleet: Fleet) -> None:
    state = fleet.state
    dlid = fleet.lids("h5").lid + fleet.connect("h0", "h5")
    for second in range(5):
        fleet.tell_rates("h0", dlid, second * 1_000_000_000)
        fleet.run(1.0)
        state.watch_links(fleet.now_s)
    (row,) = qp_views.queue_pairs(state, fleet.now_s)["queue_pairs"]
    assert (row["host"], row["nic"], row["peer_addr"]) == ("h0", NIC, fleet.addr("h5"))
    assert (row["sport"], row["actuator"]) == (dlid, "create_only")
    assert row["bps"] == pytest.approx(8e9)
    assert state.traffic.reports["ok"] == 5
    assert all(document.steer == [] for document in fleet.documents.values())


def test_changes_are_told_as_events(fleet: Fleet) -> None:
    (event,) = [one for one in fleet.state.events if one.kind == "ib_spread"]
    assert event.detail == "pairs of ports whose new connections are spread anew: 96 for the first time"
    assert event.kind in CHANGES


def test_a_manager_that_takes_over_goes_on_with_what_hosts_were_told(fleet: Fleet) -> None:
    fleet.loads_bps[port(fleet.subnet, "l0", 5)] = 0.9 * LINK_BPS
    fleet.run(CALM_S + 30)
    before = {host: document.spreads for host, document in fleet.documents.items()}
    later = Fleet()
    later.documents, later.now_s = dict(fleet.documents), fleet.now_s
    for document in fleet.documents.values():
        later.state.ib_spreads.take_up(document)
    later.run(QUIET_S - 2)
    assert {host: document.spreads for host, document in later.documents.items()} == before
