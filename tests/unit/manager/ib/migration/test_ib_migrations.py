"""What the leader has connections over InfiniBand do: an alternate path ahead, another path when theirs is faulty or full, or as wanted."""

import errno
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from migrating import Migrating

from cwdp.errors import ConfigError
from cwdp.shared.addresses import PortLids
from cwdp.shared.bus.messages import Leader
from cwdp.shared.verbs import MigrationAnswer, MigrationReport
from manager.api.overrides_http import require_steerable
from manager.clock.timeline import Identity
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Kind, Subject, cable
from manager.history.queries import CHANGES
from manager.hosts.happening import MOST_LISTED
from manager.ib.migration.migrations import LOADS_PER_HOST_S, RESTS_MOST_S
from manager.overrides.steering import SteerOverride
from tests.unit.manager.ib.ib_worlds import port
from tests.unit.manager.ib.spreading.ib_fleets import LINK_BPS, NIC


def backed_up(pairs: int = 1, **more: object) -> Migrating:
    """A fleet with connections from h0 to h5 over path 0, each with an alternate path that is armed."""
    fleet = Migrating(**more)
    for _ in range(pairs):
        fleet.join("h0", "h5", 0)
    fleet.live(8.0)
    assert all(end.loaded is not None and end.is_armed for pair in fleet.ends for end in pair)
    return fleet


def numbers(fleet: Migrating) -> list[tuple[int, int]]:
    return [(one.number, other.number) for one, other in fleet.ends]


def outcomes(fleet: Migrating) -> dict[str, int]:
    return {outcome: count for outcome, count in fleet.state.migrations.outcomes.items() if count}


def states(fleet: Migrating) -> dict[str, int]:
    return {state: count for state, count in fleet.state.migrations.states.items() if count}


def name(fleet: Migrating, kind: Kind, subject: Subject) -> Finding:
    """Have something be found to be faulty."""
    found = Finding(number=0, kind=kind, subject=subject, confidence=1.0, evidence=[], start_s=0.0)
    return fleet.state.faults.open(found)


def wanted(fleet: Migrating, number: int, place: int = 0, **more: object) -> SteerOverride:
    """What an operator says, of the first end of a connection."""
    end = fleet.ends[place][0]
    dst = fleet.addr(end.far)
    sport = fleet.lids(end.far).lid + number
    return SteerOverride(host=end.host, nic=NIC, dst=dst, qpn=end.qpn, sport=sport, **more)  # type: ignore[arg-type]


def test_each_connection_has_an_alternate_path_loaded_that_shares_no_link_with_its_own() -> None:
    fleet = backed_up()
    ((one, other),) = fleet.ends
    assert one.loaded == other.loaded != 0
    assert numbers(fleet) == [(0, 0)]
    assert [step.how for _, step in fleet.taken] == ["load", "load"]
    assert (outcomes(fleet), states(fleet)) == ({"loaded": 1}, {"backed_up": 1})
    fleet.live(60.0)
    assert len(fleet.taken) == 2


def test_a_link_that_dies_has_both_ends_take_the_alternate_path() -> None:
    fleet = backed_up(pairs=20)
    before = [one.loaded for one, _ in fleet.ends]
    fleet.taken.clear()
    fleet.kill("l0", 5 + fleet.lids("h5").lid % 4)
    fleet.live(3.0)
    assert numbers(fleet) == [(to, to) for to in before]
    assert {step.how for _, step in fleet.taken[:40]} == {"migrate"}
    assert outcomes(fleet)["fault"] == 20
    (told,) = fleet.events("qp_migrated")
    assert told == "20 connections of h0, h5: as a link or a switch of their path is faulty"
    assert "qp_migrated" in CHANGES
    (moves,) = [one.moves for one in fleet.state.events if one.kind == "qp_migrated"]
    assert moves is not None
    assert (moves.count, len(moves.listed)) == (20, MOST_LISTED)
    assert {move.why for move in moves.listed} == {"as a link or a switch of their path is faulty"}
    assert all(move.sport != move.before_sport for move in moves.listed)
    fleet.live(10.0)
    assert all(one.loaded == other.loaded not in (None, 0) for one, other in fleet.ends)
    assert set(numbers(fleet)) == {(to, to) for to in before}


@pytest.mark.parametrize("kind", ["flapping", "degraded", "bit_errors"])
def test_connections_leave_what_is_named_faulty_and_do_not_come_back_when_it_is_well(kind: Kind) -> None:
    fleet = backed_up()
    spine = f"s{fleet.lids('h5').lid % 4}"
    finding = name(fleet, kind, cable(DirectedLink("l1", spine)))
    fleet.live(1.0)
    ((after, _),) = numbers(fleet)
    assert after != 0
    fleet.state.faults.close(finding, 1.0)
    fleet.live(30.0)
    assert numbers(fleet) == [(after, after)]
    assert outcomes(fleet)["fault"] == 1


def test_connections_leave_a_switch_that_is_named() -> None:
    fleet = backed_up()
    name(fleet, "dead", Subject("switch", f"s{fleet.lids('h5').lid % 4}"))
    fleet.live(1.0)
    assert outcomes(fleet)["fault"] == 1


def test_links_that_all_paths_cross_or_that_are_only_full_move_nobody() -> None:
    fleet = backed_up()
    name(fleet, "bit_errors", cable(DirectedLink("h0/mlx5_0", "l0")))
    name(fleet, "congested", cable(DirectedLink("l0", f"s{fleet.lids('h5').lid % 4}")))
    fleet.live(20.0)
    assert numbers(fleet) == [(0, 0)]
    assert states(fleet) == {"not_backed_up": 1, "no_other_path": 1}


def test_one_whose_path_is_dead_before_an_alternate_one_is_armed_stays_and_that_is_counted() -> None:
    fleet = Migrating()
    fleet.join("h0", "h5", 0)
    fleet.live(3.0, tells=False)
    fleet.kill("l0", 5 + fleet.lids("h5").lid % 4)
    fleet.live(20.0)
    assert numbers(fleet) == [(0, 0)]
    assert outcomes(fleet)["not_armed"] >= 2
    assert fleet.events("qp_not_migrated")[0] == "1 connection of h0, h5: 1 not armed"


def test_alternate_paths_are_loaded_little_by_little() -> None:
    fleet = Migrating()
    for _ in range(100):
        fleet.join("h0", "h5", 0)
    fleet.live(1.5)
    assert 0 < len(fleet.taken) / 2 <= 2 * LOADS_PER_HOST_S
    fleet.live(10.0)
    assert outcomes(fleet) == {"loaded": 100}


def test_a_full_link_is_relieved_by_one_connection_at_a_time() -> None:
    fleet = backed_up(pairs=8)
    row = port(fleet.subnet, "l0", 5 + fleet.lids("h5").lid % 4)
    fleet.qps["h0"] = [(fleet.addr("h5"), one.qpn, one.lqpn) for one, _ in fleet.ends]
    sent = 0
    for _ in range(60):
        sent += round(LINK_BPS / 8 / 8)
        fleet.loads_bps[row] = sum(one.number == 0 for one, _ in fleet.ends) / 8 * LINK_BPS
        fleet.tell_rates("h0", fleet.lids("h5").lid, sent)
        fleet.live(1.0)
    assert 1 <= outcomes(fleet)["room"] <= 2
    assert all(one == other for one, other in numbers(fleet))
    assert sum(one.number == 0 for one, _ in fleet.ends) == 8 - outcomes(fleet)["room"]


def test_even_loads_move_nobody() -> None:
    fleet = backed_up(pairs=4)
    fleet.loads_bps[:] = 0.9 * LINK_BPS
    fleet.qps["h0"] = [(fleet.addr("h5"), one.qpn, one.lqpn) for one, _ in fleet.ends]
    for turn in range(30):
        fleet.tell_rates("h0", fleet.lids("h5").lid, turn * round(LINK_BPS / 32))
        fleet.live(1.0)
    assert outcomes(fleet) == {"loaded": 4}


def test_an_operator_has_a_connection_take_another_path_and_the_planner_leaves_it_there() -> None:
    fleet = backed_up()
    fleet.state.steering.set(require_steerable(fleet.state, wanted(fleet, 3)))
    fleet.live(1.0)
    assert numbers(fleet) == [(3, 3)]
    assert outcomes(fleet)["operator"] == 1
    name(fleet, "degraded", cable(DirectedLink("l1", f"s{(fleet.lids('h5').lid + 3) % 4}")))
    fleet.live(10.0)
    assert numbers(fleet) == [(3, 3)]
    assert fleet.events("qp_migrated") == ["1 connection of h0, h5: as an operator wants it"]


def test_what_operators_want_is_in_no_document() -> None:
    fleet = backed_up()
    fleet.state.steering.set(wanted(fleet, 1))
    assert fleet.state.steering.messages() == {}


def test_an_operator_is_told_why_not() -> None:
    fleet = backed_up()
    lids = fleet.lids("h5")
    with pytest.raises(ConfigError, match=f"its paths lead to the LIDs {lids.lid} to {lids.lid + 3}"):
        require_steerable(fleet.state, wanted(fleet, 4))
    with pytest.raises(ConfigError, match="backups and flow labels are of source ports"):
        require_steerable(fleet.state, wanted(fleet, 1, backup_sport=50_000))
    fleet.state.steering.set(wanted(fleet, 2))
    (_, other), back = fleet.ends[0], fleet.lids("h0").lid
    contrary = SteerOverride(host="h5", nic=NIC, dst=fleet.addr("h0"), qpn=other.qpn, sport=back + 1)
    with pytest.raises(ConfigError, match="its other end, at h0, is steered to another path"):
        require_steerable(fleet.state, contrary)
    fleet.ends[0] = fleet.ends[0][:1] * 2
    fleet.live(3.0)
    with pytest.raises(ConfigError, match="both ends must"):
        require_steerable(fleet.state, wanted(fleet, 1))


def test_a_switched_off_planner_moves_nobody_but_operators_do() -> None:
    fleet = Migrating(enabled=False)
    fleet.join("h0", "h5", 0)
    fleet.live(10.0)
    assert fleet.taken == []
    fleet.state.steering.set(wanted(fleet, 2))
    fleet.live(2.0)
    assert numbers(fleet) == [(2, 2)]


def _break_pair(fleet: Migrating) -> None:
    del fleet.ends[0]
    fleet.tell()


def _put_apart(fleet: Migrating) -> None:
    fleet.ends[0][1].number = 2


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda fleet: fleet.old.add("h5"), {"no_orders": 1}),
        (_put_apart, {"paths_differ": 1}),
        (_break_pair, {}),
        (lambda fleet: fleet.ends[0][1].__setattr__("lqpn", 5), {"one_end": 2}),
    ],
)
def test_what_cannot_migrate_is_left_alone_and_counted(
    change: Callable[[Migrating], None], found: dict[str, int]
) -> None:
    fleet = Migrating()
    fleet.join("h0", "h5", 0)
    change(fleet)
    fleet.live(10.0)
    assert (fleet.taken, states(fleet)) == ([], found)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errno.EBUSY, "busy"),
        (errno.ENOTCONN, "not_connected"),
        (errno.ENOENT, "gone"),
        (errno.EALREADY, "went_itself"),
        (errno.EOPNOTSUPP, "no_apm"),
        (errno.EINVAL, "not_its_lid"),
        (errno.EPERM, "not_granted"),
        (errno.EIO, "device"),
    ],
)
def test_refusals_are_counted_by_reason_told_once_and_tried_ever_more_seldom(
    error: int, outcome: str
) -> None:
    fleet = Migrating()
    fleet.join("h0", "h5", 0)[1].error = error
    fleet.live(120.0, step_s=0.5)
    tries = outcomes(fleet)
    assert tries.keys() == {outcome}
    assert 5 <= tries[outcome] <= 8
    assert fleet.events("qp_not_migrated") == [f"1 connection of h0, h5: 1 {outcome.replace('_', ' ')}"]
    fleet.ends[0][1].error = 0
    fleet.live(RESTS_MOST_S + 2, step_s=0.5)
    assert outcomes(fleet)["loaded"] == 1


def test_the_end_of_a_connection_is_the_end_of_its_attempts() -> None:
    fleet = backed_up()
    fleet.ends[0][0].error = errno.ENOENT
    name(fleet, "dead", Subject("switch", f"s{fleet.lids('h5').lid % 4}"))
    fleet.live(0.3)
    fleet.ends.clear()
    fleet.live(5.0)
    assert (len(fleet.state.migrations.attempts), states(fleet)) == (0, {})


def test_an_end_that_was_not_heard_of_follows_when_it_is() -> None:
    fleet = backed_up()
    one, other = fleet.ends[0]
    late = max((one, other), key=lambda end: fleet.addr(end.host))
    late.error = errno.EIO
    spine = f"s{fleet.lids('h5').lid % 4}"
    name(fleet, "degraded", cable(DirectedLink("l1", spine)))
    fleet.live(4.0)
    assert one.number != other.number
    late.error = 0
    fleet.live(10.0)
    assert one.number == other.number != 0
    assert outcomes(fleet)["follow"] == 1


def test_an_agent_that_begins_anew_has_the_same_path_loaded_again_which_disarms_nothing() -> None:
    fleet = backed_up()
    one, _ = fleet.ends[0]
    before, one.knows = one.loaded, False
    fleet.kill("l0", 5 + fleet.lids("h5").lid % 4)
    fleet.live(4.0)
    assert numbers(fleet) == [(before, before)]


def test_a_silent_agent_has_an_order_come_to_nothing_and_nothing_late_is_done() -> None:
    fleet = backed_up()
    fleet.taken.clear()
    fleet.silent.add("h5")
    name(fleet, "dead", Subject("switch", f"s{fleet.lids('h5').lid % 4}"))
    fleet.state.migrations.step(fleet.now_s)
    kept = list(fleet.said)
    assert kept
    fleet.said.clear()
    fleet.now_s += 3.5
    fleet.state.migrations.step(fleet.now_s)
    assert outcomes(fleet)["unanswered"] == 1
    fleet.silent.clear()
    fleet.said = kept
    fleet.answer()
    assert numbers(fleet) == [(0, 0)]


def test_answers_of_other_hosts_count_for_nothing() -> None:
    fleet = Migrating()
    fleet.join("h0", "h5", 0)
    fleet.live(1.0, tells=False)
    for host in fleet.row:
        fleet.state.hear_hello(fleet.hello(host), fleet.now_s)
    fleet.tell()
    fleet.now_s += 1.0
    fleet.state.migrations.step(fleet.now_s)
    (number,) = [step.number for host, order in fleet.said if host == "h0" for step in order.steps]
    forged = MigrationReport(host="h7", answers=[MigrationAnswer(number, errno.EIO), MigrationAnswer(99, 0)])
    fleet.state.migrations.hear(forged, fleet.now_s)
    fleet.answer()
    assert outcomes(fleet) == {"loaded": 1}


def test_a_new_leader_waits_until_the_old_ones_orders_are_over_and_goes_on_from_what_is_loaded() -> None:
    fleet = backed_up()
    before = fleet.ends[0][0].loaded
    fleet.taken.clear()
    fleet.state.stand_by()
    fleet.state.lead(
        fleet.now_s, Leader(2, 1.0), timeline=Identity(timeline="t", starts=1).timeline, others_led=True
    )
    name(fleet, "dead", Subject("switch", f"s{fleet.lids('h5').lid % 4}"))
    fleet.live(2.5)
    assert fleet.taken == []
    fleet.live(2.0)
    assert numbers(fleet) == [(before, before)]
    assert [step.how for _, step in fleet.taken[:2]] == ["migrate", "migrate"]


def test_lids_that_change_leave_an_operators_wish_undone_and_counted() -> None:
    fleet = backed_up()
    fleet.state.steering.set(wanted(fleet, 2))
    fleet.live(1.0)
    assert numbers(fleet) == [(2, 2)]
    subnet = fleet.subnet
    ports = subnet.ports.copy()
    hosts = np.flatnonzero(ports["lmc"] > 0)
    ports["lid"][hosts] += 64
    tables = np.roll(np.pad(subnet.tables, ((0, 0), (0, 64)), constant_values=255), 64, axis=1)
    fleet.read(replace(subnet, ports=ports, tables=tables))
    fleet.taken.clear()
    fleet.live(5.0)
    assert {step.how for _, step in fleet.taken} == {"load"}
    assert states(fleet)["lids_changed"] == 1
    assert fleet.lids("h5") == PortLids(int(ports["lid"][fleet.row["h5"]]), 2)


def test_of_many_connections_some_are_looked_at_in_each_step_and_all_when_a_link_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = backed_up(pairs=20)
    monkeypatch.setattr("manager.ib.migration.migrations.LOOKED_AT_ONCE", 2)
    for _ in range(4):
        fleet.join("h0", "h5", 0)
    fleet.live(6.0)
    assert fleet.state.migrations.states["backed_up"] == 24
    fleet.taken.clear()
    fleet.kill("l0", 5 + fleet.lids("h5").lid % 4)
    for _ in range(30):
        fleet.live(0.1)
        if fleet.taken:
            break
    assert sum(step.how == "migrate" for _, step in fleet.taken) >= 24
