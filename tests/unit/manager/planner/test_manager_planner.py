"""The closed loop in arithmetic: contention, failures, restarts, and what must not happen."""

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace
from planner_world import FIRST_PORT, PORTS, World

from cwdp.shared.bus.messages import SteerQp, SteerReport
from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, Routes
from manager.hosts.happening import MOST_LISTED, Move


def _contention(seed: int, *, spines: int = 4, slow: float = 1.0, per_leaf: int = 4, **more: object) -> World:
    """Two all-to-all jobs on every other host each, with spine links at which the best placement just fits."""
    share = 100e6 / (per_leaf - 1)
    crossing = 2 * (per_leaf // 2) ** 2
    flows = next(k for k in range(1, 99) if k * (spines - 1) + int(k * slow) >= crossing)
    world = World(
        spines=spines, hosts_per_leaf=per_leaf, spine_bps=flows * share * 1.0001, slow=slow, seed=seed, **more
    )  # type: ignore[arg-type]
    world.all_to_all(list(range(0, world.hosts, 2)))
    world.all_to_all(list(range(1, world.hosts, 2)))
    return world


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("spines", "slow"), [(4, 1.0), (3, 1.0), (8, 1.0), (4, 0.5), (2, 1.0)])
def test_contention_is_dissolved_within_three_seconds(seed: int, spines: int, slow: float) -> None:
    world = _contention(seed, spines=spines, slow=slow, delay_ticks=1 + seed % 2)
    before = world.rates().min()
    world.run(3.0)
    after = world.run(4.0)
    assert after.min() >= 0.95 * 100e6 / 3
    assert after.min() >= before
    assert all(len(qp.moves) <= 2 for qp in world.qps)


@pytest.mark.parametrize("seed", range(3))
def test_contention_is_dissolved_without_knowing_capacities(seed: int) -> None:
    world = _contention(seed, know_capacity=False)
    world.run(3.0)
    assert world.run(5.0).min() >= 0.95 * 100e6 / 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharing", [2, 3])
def test_those_that_share_a_full_link_from_the_beginning_are_taken_apart(seed: int, sharing: int) -> None:
    """Nobody was ever seen to send more than a share of that link, and what it carries is known."""
    world = World(spines=3, hosts_per_leaf=sharing, nic_bps=100e6, spine_bps=100e6, seed=seed)
    _all_over_one_spine(world, sharing)
    world.known = Routes()
    world.run(3.0)
    assert world.rates() == pytest.approx(100e6 / sharing, rel=0.01)
    world.known = world.routes
    world.run(4.0)
    assert world.rates().min() >= 0.95 * 100e6


def _all_over_one_spine(world: World, count: int) -> None:
    """So many queue pairs from the first leaf to the second, by ports that lead over one of the spines."""
    for h in range(count):
        qp = world.add(h, count + h)
        over = {port: world.path(qp, port) for port in range(FIRST_PORT, FIRST_PORT + PORTS)}
        qp.sport = min(
            port for port, links in over.items() if world.number[DirectedLink("l0", "s1")] in links
        )


@pytest.mark.parametrize("seed", range(3))
def test_once_all_is_well_nothing_moves(seed: int) -> None:
    world = _contention(seed, noise=0.1)
    world.run(5.0)
    moves = world.moves()
    world.run(12.0)
    assert world.moves() == moves


@pytest.mark.parametrize("seed", range(3))
def test_what_cannot_be_placed_well_does_not_go_to_and_fro(seed: int) -> None:
    """Seven elastic flows over three spines, for which no placement is even."""
    world = World(spines=3, hosts_per_leaf=7, spine_bps=150e6, seed=seed, noise=0.1)
    for i in range(7):
        world.add(i, 7 + i)
    world.run(5.0)
    moves = world.moves()
    world.run(25.0)
    assert world.moves() <= moves + 1


@pytest.mark.parametrize("seed", range(3))
def test_no_queue_pair_moves_twice_within_the_hold_time_and_no_host_moves_too_many(seed: int) -> None:
    settings = PlannerSettings(hold_s=3.0, moves_per_host_s=1.0)
    world = _contention(seed, settings=settings, per_leaf=6)
    world.run(20.0)
    for qp in world.qps:
        assert (np.diff(qp.moves) >= 3.0 - 1e-6).all()
    for host in range(world.hosts):
        moves = np.sort([s for qp in world.qps if qp.src == host for s in qp.moves])
        assert len(moves) <= 1 + (moves[-1] - moves[0] if len(moves) else 0) + 1


def test_every_queue_pair_has_a_way_round_within_a_second() -> None:
    world = _contention(1)
    world.run(1.0)
    for qp in world.qps:
        if len(world.path(qp)) > 2:
            assert qp.backup is not None
            assert set(world.path(qp)[1:-1]).isdisjoint(world.path(qp, qp.backup)[1:-1])
        else:
            assert qp.backup is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("localised_after_s", [0.5, None])
def test_after_a_cut_the_survivors_carry_the_load_evenly_and_all_returns(
    seed: int, localised_after_s: float | None
) -> None:
    world = _contention(seed)
    world.run(5.0)
    assert world.run(1.0).min() >= 0.95 * 100e6 / 3
    spine = int(world.rng.integers(4))
    world.cut(0, spine)
    world.run(1.0)
    if localised_after_s is not None:
        world.localised = set(world.dead)
    rates = world.run(1.5)
    assert rates[-1].min() >= 0.95 * 2 / 3 * 100e6 / 3
    world.run(1.0)
    for qp in world.qps:
        if len(world.path(qp)) > 2 and localised_after_s is not None:
            for sport in (qp.sport, qp.backup):
                assert not any(world.links[i] in world.dead for i in world.path(qp, sport))
    world.heal()
    world.run(3.0 if localised_after_s is None else 1.75)
    assert world.run(5.0).min() >= 0.95 * 100e6 / 3


def test_a_second_failure_finds_a_backup_ready() -> None:
    world = _contention(3)
    world.run(4.0)
    world.cut(0, 1)
    world.localised = set(world.dead)
    world.run(1.0)
    first = set(world.dead)
    world.cut(0, 2)
    world.dead |= first
    assert world.rates().min() > 0.0


def test_a_restarted_planner_takes_up_what_it_finds_and_changes_nothing() -> None:
    world = _contention(5)
    world.run(6.0)
    before = [(qp.sport, qp.backup) for qp in world.qps]
    world.restart()
    world.run(4.0)
    assert [(qp.sport, qp.backup) for qp in world.qps] == before
    assert world.planner.counters["adopted"] == sum(backup is not None for _, backup in before)
    assert world.planner.counters["moved"] == 0


def test_what_operators_want_and_what_is_steered_by_hand_is_left_alone() -> None:
    world = _contention(2)
    qp, other = world.crossing()[:2]
    steer = SteerQp(nic="eth0", dst_addr=world.address(qp.dst), qpn=qp.qpn, sport=qp.sport)
    world.overrides = {f"h{qp.src}": [steer]}
    by_hand = SteerQp(nic="eth0", dst_addr=world.address(other.dst), qpn=other.qpn, sport=other.sport)
    world.planner.hear_steering(SteerReport(host=f"h{other.src}", managed=[], by_hand=[by_hand]), world.now_s)
    world.run(6.0)
    told = {wanted.qpn for steered in world.planner.planned.values() for wanted in steered}
    assert qp.qpn not in told
    assert other.qpn not in told
    assert len(told) > 10


def test_an_override_for_a_queue_pair_that_the_planner_steers_takes_it_away_from_it() -> None:
    world = _contention(2)
    world.run(2.0)
    qp = world.crossing()[0]
    world.overrides = {
        f"h{qp.src}": [SteerQp(nic="eth0", dst_addr=world.address(qp.dst), qpn=qp.qpn, sport=qp.sport)]
    }
    world.run(0.5)
    assert qp.qpn not in {w.qpn for steered in world.planner.planned.values() for w in steered}


def test_a_host_that_only_observes_is_told_nothing() -> None:
    world = _contention(2)
    world.run(2.0)
    assert "h1" in world.planner.planned
    hello = world.members.hosts["h1"].hello
    world.members.hear(replace(hello, observe_only=True), world.now_s)
    world.run(2.0)
    assert "h1" not in world.planner.planned
    assert "h2" in world.planner.planned


def test_switched_off_it_wants_nothing() -> None:
    world = _contention(2, settings=PlannerSettings(enabled=False))
    world.run(3.0)
    assert world.planner.planned == {}
    assert world.events == []


def test_every_step_is_told_once_with_its_reason() -> None:
    world = _contention(7)
    world.run(5.0)
    kinds = Counter(kind for _, kind, _ in world.events)
    assert 1 <= kinds["qp_moved"] <= 8
    assert sum(int(detail.split()[0]) for _, kind, detail in world.events if kind == "qp_moved") == sum(
        len(qp.moves) for qp in world.qps
    )
    world.cut(1, 2)
    world.localised = set(world.dead)
    world.run(1.0)
    told = [detail for _, kind, detail in world.events if kind == "qp_rerouted"]
    assert told
    assert "is not to be used" in told[0]
    assert all(len(detail) <= 200 for _, _, detail in world.events)


def test_each_queue_pair_is_told_with_before_and_after_and_why() -> None:
    world = _contention(7)
    kept: list[Move] = []
    world.planner.on_moves = [kept.extend]
    ports = {(f"h{qp.src}", world.address(qp.dst), qp.qpn): qp.sport for qp in world.qps}
    world.run(5.0)
    world.cut(1, 2)
    world.run(1.0)
    world.localised = set(world.dead)
    world.run(1.0)
    for move in kept:
        name = move.host, move.dst_addr, move.qpn
        assert move.before_sport == ports[name]
        assert move.sport is not None
        ports[name] = move.sport
        src, dst = move.switches[0], move.switches[-1]
        assert [src, dst] == [move.before_switches[0], move.before_switches[-1]]
        if move.what == "backed_up":
            assert (move.sport, move.switches) == (move.before_sport, move.before_switches)
            assert move.why == "it had no backup" or "its backup" in move.why or "this backup" in move.why
        else:
            assert move.switches != move.before_switches
            assert move.why.startswith(f"{src} > {move.before_switches[1]} ") or f" > {dst} " in move.why
    whys = {what: {move.why for move in kept if move.what == what} for what in ("moved", "rerouted")}
    assert all("of what it carries, now" in why for why in whys["moved"])
    assert whys["rerouted"]
    assert all(why.endswith(" was given up by hosts") for why in whys["rerouted"])
    assert all("l1 > s2" in why or "s2 > l1" in why for why in whys["rerouted"])
    listed = [move for moves in world.told_moves for move in moves.listed]
    assert all(move in kept for move in listed)
    assert sum(moves.count for moves in world.told_moves) == len(kept)
    assert all(len(moves.listed) == min(moves.count, MOST_LISTED) for moves in world.told_moves)


def test_idle_queue_pairs_are_let_go() -> None:
    world = _contention(1)
    world.run(2.0)
    assert world.planner.planned
    world.qps.clear()
    world.run(40.0)
    assert world.planner.planned == {}
    assert world.events[-1][1] == "qp_released"
    (released, *_) = world.told_moves[-1].listed
    assert (released.sport, released.backup_sport, released.switches) == (None, None, [])
    assert released.before_sport is not None
    assert released.why == "it has not sent for a while"


def _steered(world: World) -> dict[str, list[SteerQp]]:
    return {host: list(wanted) for host, wanted in world.planner.planned.items()}


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_hosts_that_say_nothing_keep_what_they_have(seconds: float) -> None:
    """The bus is away while traffic flows: nobody knows what is idle."""
    world = _contention(1)
    world.run(5.0)
    before = _steered(world)
    assert before
    world.silent = set(range(world.hosts))
    world.run(seconds)
    assert _steered(world) == before
    world.silent = set()
    world.run(1.0)
    assert {(host, qp.qpn) for host, mine in _steered(world).items() for qp in mine} == {
        (host, qp.qpn) for host, mine in before.items() for qp in mine
    }
    assert "qp_released" not in {kind for _, kind, _ in world.events}


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_hosts_traffic_keeps_its_room(seed: int) -> None:
    world = _contention(seed)
    world.run(5.0)
    quiet = {0, 1, 2}
    world.silent = quiet
    before = {host: wanted for host, wanted in _steered(world).items() if int(host[1:]) in quiet}
    world.run(3.0)
    moves = world.moves()
    assert world.run(20.0).min() >= 0.9 * 100e6 / 3
    assert world.moves() <= moves + 1
    assert {host: wanted for host, wanted in _steered(world).items() if int(host[1:]) in quiet} == before


def test_what_is_idle_is_let_go_when_its_host_has_said_so_for_long_enough() -> None:
    """Of 15 s of idleness only those count of which its host tells."""
    world = _contention(1)
    world.run(3.0)
    gone = [qp for qp in world.qps if qp.src == 0]
    world.qps = [qp for qp in world.qps if qp.src != 0]
    for _ in range(3):
        world.run(4.0)
        world.silent = {0}
        world.run(20.0)
        world.silent = set()
    assert len(world.planner.planned["h0"]) == sum(qp.backup is not None for qp in gone)
    world.run(10.0)
    assert "h0" not in world.planner.planned


def test_what_is_steered_at_a_nic_that_a_host_has_no_more_is_let_go() -> None:
    world = _contention(1)
    world.run(3.0)
    assert "h0" in world.planner.planned
    other = [replace(nic, ifname="eth9") for nic in world.members.hosts["h0"].hello.nics]
    world.silent = {0}
    world.members.hear(replace(world.members.hosts["h0"].hello, nics=other), world.now_s)
    world.planner.expire()
    assert "h0" not in world.planner.planned
    assert "h1" in world.planner.planned


def test_what_did_not_fit_into_a_report_is_not_idle_yet() -> None:
    world = _contention(1)
    world.run(3.0)
    before = _steered(world)
    world.most_listed = 1
    world.run(20.0)
    assert _steered(world).keys() == before.keys()
    assert all(len(_steered(world)[host]) == len(mine) for host, mine in before.items())


def test_applications_that_want_little_are_not_moved() -> None:
    world = World(seed=4)
    for i in range(4):
        world.add(i, 4 + i, most_bps=10e6)
    for qp in world.qps:
        qp.sport = world.qps[0].sport
    world.run(10.0)
    assert world.moves() == 0


def test_a_queue_pair_whose_way_is_not_known_is_left_for_a_while_and_then_put_on_a_known_path() -> None:
    world = World(seed=4)
    qp = world.add(0, 5)
    port = qp.sport
    paths = {name: links for name, links in world.routes.paths.items() if name.sport != port}
    world.known = Routes(2, world.routes.links, paths)
    world.run(0.5)
    assert qp.sport == port
    assert world.planner.planned == {}
    world.run(1.5)
    assert qp.sport != port
    assert qp.backup is not None
    assert [kind for _, kind, _ in world.events] == ["qp_rerouted"]


def test_queue_pairs_stay_where_they_are_beside_others_that_cannot_be_placed() -> None:
    world = World(seed=3)
    for h in range(4):
        world.add(h, 4 + h, most_bps=1e6)
    hidden = {world.address(4)}
    world.known = Routes(
        2,
        world.routes.links,
        {name: p for name, p in world.routes.paths.items() if name.dst_addr not in hidden},
    )
    before = [qp.sport for qp in world.qps]
    world.run(5.0)
    assert [qp.sport for qp in world.qps] == before
    assert all(qp.backup not in (None, qp.sport) for qp in world.qps[1:])


def test_a_lying_host_does_not_move_others() -> None:
    """It says that every path of its own is dead: links that others' watched paths cross are not suspected."""
    world = _contention(6)
    world.run(5.0)
    moves = {qp.qpn: len(qp.moves) for qp in world.qps}
    for qp in world.qps:
        if qp.src == 0 and qp.backup is not None:
            world.say_down(qp)
    world.run(5.0)
    others = [qp for qp in world.qps if qp.src != 0]
    assert sum(len(qp.moves) - moves[qp.qpn] for qp in others) <= 2
    assert world.run(1.0).min() >= 0.9 * 100e6 / 3


def test_a_link_in_one_direction_only_is_named() -> None:
    world = _contention(1)
    world.run(3.0)
    world.cut(0, 0)
    world.run(1.0)
    assert set(world.planner.standing.dead) <= {
        DirectedLink(a, b) for a, b in (("l0", "s0"), ("s0", "l0"), ("s0", "l1"), ("l1", "s0"))
    }
    assert world.planner.standing.dead
