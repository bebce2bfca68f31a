"""Failover in the kernel: packets leave a path that has fallen silent, and come back to one that has proved itself."""

import time

import pytest
import roce
from machine import XDP_DROP, Machine
from probes import request
from pulses import (
    BACKUP,
    BEHIND_MIN,
    DEAD_AFTER_NS,
    HOLD_DOWN_MAX_NS,
    HOLD_DOWN_NS,
    PRIMARY,
    SECOND_NS,
    UNANSWERED_MIN,
    Paths,
    events,
)
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, EventKind, PathState, Position, Reason
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

PSN_SEQUENCE_ERROR = 0x60
SILENCE_NS = DEAD_AFTER_NS + SECOND_NS


@pytest.fixture
def paths(dataplane: Machine) -> Paths:
    """Two paths over which pulses have been answered so far."""
    made = Paths(dataplane)
    made.ask(PRIMARY, BACKUP)
    return made


def test_both_answer(paths: Paths) -> None:
    for _ in range(5):
        paths.pass_time(SILENCE_NS)
        paths.ask(PRIMARY, BACKUP)
        assert paths.port() == PRIMARY
    assert len(events(paths.dataplane)) == 0


def test_a_silent_primary_and_an_answering_backup(paths: Paths) -> None:
    paths.fail_primary()
    assert paths.state(BACKUP) == PathState.UP
    assert paths.port() == BACKUP


@pytest.mark.parametrize("ip_version", [4, 6])
def test_the_packet_is_whole_on_either_path(dataplane: Machine, ip_version: int) -> None:
    paths = Paths(dataplane, roce.data(ip_version=ip_version, checksum=True))
    assert dataplane.leave(paths.packet).packet == roce.steered(paths.packet, PRIMARY)
    paths.fail_primary()
    assert dataplane.leave(paths.packet).packet == roce.steered(paths.packet, BACKUP)


def test_both_are_silent(paths: Paths) -> None:
    """A dead NIC or a host that hears nothing: nothing is gained by moving."""
    paths.ask()
    paths.pass_time(SILENCE_NS)
    paths.ask()
    assert paths.port() == PRIMARY
    assert paths.state(PRIMARY) == PathState.UP


def test_the_backup_last_answered_before_the_silence(paths: Paths) -> None:
    """It may be as dead: an answer from before the primary fell silent proves nothing."""
    paths.ask()
    paths.pass_time(SILENCE_NS)
    assert paths.port() == PRIMARY
    paths.ask(BACKUP, times=1)
    assert paths.port() == BACKUP


def test_an_answer_to_an_old_pulse_proves_nothing(paths: Paths) -> None:
    """The backup must have answered a pulse that left well within the silence."""
    old = paths.send(BACKUP)
    paths.ask()
    paths.pass_time(SILENCE_NS)
    paths.ask(times=1)
    assert paths.answer(old).verdict == XDP_DROP
    assert paths.port() == PRIMARY
    paths.pass_time(3 * SILENCE_NS)
    assert paths.port() == PRIMARY
    assert paths.answer(paths.send(BACKUP)).verdict == XDP_DROP
    assert paths.port() == BACKUP


def test_while_the_backup_is_slow_the_primary_has_more_time(paths: Paths) -> None:
    """A burst holds the answers of both paths up, and lets go of the backup's first."""
    late = paths.send(BACKUP)
    paths.ask()
    paths.pass_time(SILENCE_NS)
    paths.answer(late)
    paths.ask(BACKUP, times=1)
    assert paths.port() == PRIMARY
    for _ in range(100):
        paths.ask(BACKUP, times=1)
    assert paths.port() == BACKUP


def test_what_made_the_backup_slow_long_ago_is_forgotten_however_few_pulses_it_had_since(
    paths: Paths,
) -> None:
    late = paths.send(BACKUP)
    paths.pass_time(SILENCE_NS)
    paths.answer(late)
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(SILENCE_NS)
    paths.ask(PRIMARY, BACKUP, times=1)
    paths.ask(BACKUP)
    paths.pass_time(SILENCE_NS)
    paths.ask(BACKUP, times=1)
    assert paths.port() == BACKUP


def test_no_pulses_are_no_silence(paths: Paths) -> None:
    """An agent that is stopped moves nothing, however long."""
    paths.pass_time(100 * SILENCE_NS)
    assert paths.port() == PRIMARY
    paths.ask(BACKUP, times=UNANSWERED_MIN - 1)
    paths.pass_time(SILENCE_NS)
    assert paths.port() == PRIMARY


def test_pulses_that_are_far_apart_do_not_add_up_to_a_silence(paths: Paths) -> None:
    """One lost long ago, three that have just left: no silence yet. Asked closely, it becomes one."""
    paths.dataplane.maps.control["pulse_gap_ns"] = DEAD_AFTER_NS // 2
    paths.ask(PRIMARY, BACKUP)
    paths.ask(BACKUP, times=1)
    paths.pass_time(20 * SILENCE_NS)
    paths.ask(BACKUP, times=UNANSWERED_MIN - 1)
    assert paths.port() == PRIMARY
    paths.ask(BACKUP, times=1)
    assert paths.port() == PRIMARY
    for _ in range(3):
        paths.pass_time(DEAD_AFTER_NS // 2 - SECOND_NS)
        paths.ask(BACKUP, times=1)
    assert paths.port() == BACKUP


def test_pulses_of_an_agent_that_seldom_gets_a_processor_add_up(paths: Paths) -> None:
    """All its pulses are further apart: a pause of all of them counts as one gap, however long."""
    paths.dataplane.maps.control["pulse_gap_ns"] = DEAD_AFTER_NS // 2
    paths.ask(PRIMARY, BACKUP)
    taken = []
    for _ in range(UNANSWERED_MIN + 1):
        paths.ask(BACKUP, times=1)
        taken.append(paths.port())
        paths.pass_time(20 * SILENCE_NS)
    assert taken == [PRIMARY] * (UNANSWERED_MIN - 1) + [BACKUP] * 2


def test_pauses_of_others_are_none_of_a_path_that_waits_its_turn(paths: Paths) -> None:
    """Asked once a long time ago, when others were asked all the while."""
    paths.dataplane.maps.control["pulse_gap_ns"] = DEAD_AFTER_NS // 2
    paths.ask(PRIMARY, BACKUP)
    paths.ask(BACKUP, times=1)
    for _ in range(40):
        paths.pass_time(DEAD_AFTER_NS // 4)
        paths.answer(paths.send(BACKUP))
    for _ in range(UNANSWERED_MIN):
        paths.ask(BACKUP, times=1)
    assert paths.port() == PRIMARY


def test_a_silence_that_is_known_lasts_however_rarely_it_is_asked(paths: Paths) -> None:
    """A queue pair that sends nothing meanwhile finds its path dead at its first packet."""
    paths.dataplane.maps.control["pulse_gap_ns"] = DEAD_AFTER_NS // 2
    paths.ask(PRIMARY, BACKUP)
    paths.ask(BACKUP)
    for _ in range(3):
        paths.pass_time(20 * SILENCE_NS)
        paths.ask(BACKUP, times=1)
    assert paths.port() == BACKUP


def test_late_but_steady_answers_are_no_silence(paths: Paths) -> None:
    """A queue on the way that holds more than dead_after of pulses."""
    under_way = []
    for _ in range(20):
        under_way += [paths.send(PRIMARY) for _ in range(UNANSWERED_MIN)]
        paths.ask(BACKUP, times=1)
        paths.pass_time(DEAD_AFTER_NS // 2)
        if len(under_way) > 4 * UNANSWERED_MIN:
            assert paths.answer(under_way.pop(0)).verdict == XDP_DROP
        else:
            paths.answer(paths.send(PRIMARY))
        assert paths.port() == PRIMARY
    assert len(events(paths.dataplane)) == 0


def test_a_steered_queue_pair_without_a_backup_stays(dataplane: Machine) -> None:
    paths = Paths(dataplane)
    lonely = roce.data(dqpn=77)
    dataplane.steer(lonely, Steer(PRIMARY))
    paths.fail_primary()
    assert dataplane.leave(lonely).dissected["UDP"].sport == PRIMARY


def test_all_queue_pairs_of_a_path_leave_it(dataplane: Machine) -> None:
    """The first packet to notice writes the event; there is no second."""
    paths = Paths(dataplane)
    others = [roce.data(dqpn=n) for n in range(1, 20)]
    for other in others:
        dataplane.steer(other, Steer(PRIMARY, BACKUP))
    paths.fail_primary()
    for other in others:
        assert dataplane.leave(other).dissected["UDP"].sport == BACKUP
    assert len(events(dataplane)) == 1


def test_back_after_the_hold_down(paths: Paths) -> None:
    paths.fail_primary()
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(HOLD_DOWN_NS - 10 * SECOND_NS)
    paths.ask(PRIMARY, BACKUP)
    assert paths.port() == BACKUP
    paths.pass_time(20 * SECOND_NS)
    paths.ask(PRIMARY, BACKUP, times=1)
    assert paths.port() == PRIMARY
    assert paths.state(PRIMARY) == PathState.UP


def test_a_silence_during_the_hold_down_starts_it_again(paths: Paths) -> None:
    paths.fail_primary()
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(HOLD_DOWN_NS - 20 * SECOND_NS)
    paths.ask(BACKUP)
    paths.pass_time(SILENCE_NS)
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(HOLD_DOWN_NS - 20 * SECOND_NS)
    paths.ask(PRIMARY, BACKUP)
    assert paths.port() == BACKUP
    paths.pass_time(30 * SECOND_NS)
    paths.ask(PRIMARY, BACKUP, times=1)
    assert paths.port() == PRIMARY


def test_only_pulses_bring_it_back(paths: Paths) -> None:
    """Time alone does not, nor do packets."""
    paths.fail_primary()
    paths.pass_time(10 * HOLD_DOWN_NS)
    paths.ask(BACKUP)
    assert paths.port() == BACKUP


def recover(paths: Paths, hold_ns: int) -> None:
    """Healthy for as long as it has to be."""
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(hold_ns + SECOND_NS)
    paths.ask(PRIMARY, BACKUP, times=1)
    assert paths.port() == PRIMARY


def test_the_hold_down_doubles_up_to_the_ceiling(paths: Paths) -> None:
    for hold_ns in (100, 200, 400, 800, 1000, 1000):
        paths.fail_primary()
        assert int(paths.path(PRIMARY)["hold_ns"]) == hold_ns * SECOND_NS
        recover(paths, hold_ns * SECOND_NS)
    assert int(paths.path(PRIMARY)["flaps"]) == 6


def test_the_hold_down_starts_over_after_a_long_health(paths: Paths) -> None:
    for _ in range(3):
        paths.fail_primary()
        recover(paths, int(paths.path(PRIMARY)["hold_ns"]))
    paths.pass_time(HOLD_DOWN_MAX_NS + SECOND_NS)
    paths.fail_primary()
    assert int(paths.path(PRIMARY)["hold_ns"]) == HOLD_DOWN_NS


def test_the_backup_dies_while_the_primary_is_held_down(paths: Paths) -> None:
    """A primary that answers, though not for long enough yet, is better than a backup that does not."""
    paths.fail_primary()
    paths.ask(PRIMARY, BACKUP)
    paths.ask(PRIMARY)
    paths.pass_time(SILENCE_NS)
    paths.ask(PRIMARY, times=1)
    assert paths.port() == PRIMARY
    assert paths.state(PRIMARY) == PathState.DOWN


def test_both_die_one_after_the_other(paths: Paths) -> None:
    """Then the packets stay on the backup, where they are."""
    paths.fail_primary()
    paths.ask()
    paths.pass_time(SILENCE_NS)
    paths.ask()
    assert paths.port() == BACKUP


def test_a_backup_that_is_down_is_not_taken(dataplane: Machine) -> None:
    """It is the primary of another queue pair, which has given it up."""
    paths = Paths(dataplane)
    other = roce.data(dqpn=77)
    dataplane.steer(other, Steer(BACKUP, PRIMARY))
    paths.ask(PRIMARY, BACKUP)
    paths.ask(PRIMARY)
    paths.pass_time(SILENCE_NS)
    paths.ask(PRIMARY, times=1)
    assert dataplane.leave(other).dissected["UDP"].sport == PRIMARY
    assert paths.state(BACKUP) == PathState.DOWN
    paths.ask(BACKUP)
    paths.pass_time(SILENCE_NS)
    paths.ask(BACKUP, times=1)
    assert paths.port() == PRIMARY
    assert paths.port(roce.acknowledge()) == PRIMARY


def test_events(paths: Paths) -> None:
    """When, what, where, and for how long."""
    began_ns, before = time.monotonic_ns(), paths.local_ns()
    maps = paths.dataplane.maps
    maps.write_clock(ref_local_ns=before, offset_ns=5 * SECOND_NS, drift=0, bound_ns=77, bound_drift=0)
    paths.fail_primary()
    recover(paths, HOLD_DOWN_NS)
    after, slack_ns = paths.local_ns(), time.monotonic_ns() - began_ns
    down, up = events(paths.dataplane)
    assert (int(down["number"]), int(up["number"])) == (1, 2)
    assert [EventKind(int(event["kind"])) for event in (down, up)] == [EventKind.PATH_DOWN, EventKind.PATH_UP]
    for event in (down, up):
        assert int(event["path"]) == paths.numbers[PRIMARY]
        assert before <= int(event["local_ns"]) <= after
        assert (int(event["offset_ns"]), int(event["bound_ns"])) == (5 * SECOND_NS, 77)
        assert int(event["hold_ns"]) == HOLD_DOWN_NS
    assert 0 <= int(down["lasted_ns"]) - SILENCE_NS <= slack_ns
    assert int(down["unanswered"]) == UNANSWERED_MIN + 1
    assert 0 <= int(up["lasted_ns"]) - (HOLD_DOWN_NS + SECOND_NS) <= slack_ns


def test_events_overwrite_the_oldest(paths: Paths) -> None:
    control, records = paths.dataplane.maps.control, paths.dataplane.maps.events
    control["event_head"] = 10 * abi.EVENTS - 1
    paths.fail_primary()
    assert int(control["event_head"][0]) == 10 * abi.EVENTS
    assert int(records[0]["number"]) == 10 * abi.EVENTS


@pytest.mark.parametrize("path", [0, abi.PATHS, 0xFFFFFFFF])
def test_pulses_for_an_unknown_path(dataplane: Machine, path: int) -> None:
    run = dataplane.egress(request(pair_position=Position.PULSE, path=path))
    assert run.counted == {Reason.PULSE_BAD_PATH: 1}
    assert run.packet == bytes(request(pair_position=Position.PULSE, path=path))


def test_pulses_and_pairs_keep_out_of_each_others_slots(paths: Paths) -> None:
    """Of one sequence number, both are under way."""
    pair = paths.dataplane.egress(request(seq=paths.pulses)).dissected
    pulse = paths.send(PRIMARY)
    for sent in (pair, pulse):
        assert paths.answer(sent).counted == {Reason.REPLY_ACCEPTED: 1}


def test_an_answer_to_a_pair_is_no_answer_to_a_pulse(paths: Paths) -> None:
    """Though it bears a number that is one of a path: it is the initiator's own, of another table."""
    paths.ask()
    pair = paths.dataplane.egress(request(seq=1, path=paths.numbers[PRIMARY])).dissected
    assert paths.answer(pair).counted == {Reason.REPLY_ACCEPTED: 1}
    assert int(paths.path(PRIMARY)["unanswered"]) == UNANSWERED_MIN


ACKNOWLEDGEMENTS = pytest.mark.parametrize(
    "packet",
    [roce.acknowledge(), roce.acknowledge(PSN_SEQUENCE_ERROR), roce.data("XRC_ACKNOWLEDGE")],
    ids=["ACK", "NAK", "XRC"],
)


@ACKNOWLEDGEMENTS
def test_acknowledgements_leave_by_the_backup_before_the_path_is_given_up(
    paths: Paths, packet: Packet
) -> None:
    """The far end may have given it up already, and waits for them."""
    paths.port()
    paths.ask(BACKUP, times=BEHIND_MIN)
    assert paths.port(packet) == BACKUP
    assert int(paths.dataplane.qp(Direction.EGRESS)["used_sport"]) == PRIMARY
    assert paths.port() == PRIMARY
    assert paths.state(PRIMARY) == PathState.UP
    assert len(events(paths.dataplane)) == 0


def test_an_acknowledgement_that_goes_ahead_is_whole(paths: Paths) -> None:
    packet = roce.acknowledge(PSN_SEQUENCE_ERROR)
    paths.ask(BACKUP, times=BEHIND_MIN)
    assert paths.dataplane.leave(packet).packet == roce.steered(packet, BACKUP)


@pytest.mark.parametrize(
    "name",
    ["RC_SEND_ONLY", "RC_WRITE_LAST", "RC_READ_REQUEST", "RC_READ_RESPONSE_LAST", "RC_ATOMIC_ACKNOWLEDGE"],
)
def test_nothing_else_goes_ahead(paths: Paths, name: str) -> None:
    """Requests, and responses that carry data, keep their order."""
    paths.ask(BACKUP, times=BEHIND_MIN)
    assert paths.port(roce.data(name)) == PRIMARY


@ACKNOWLEDGEMENTS
def test_one_pulse_under_way_is_no_reason_to_go_ahead(paths: Paths, packet: Packet) -> None:
    paths.ask(BACKUP, times=BEHIND_MIN - 1)
    assert paths.port(packet) == PRIMARY


def test_acknowledgements_stay_where_the_backup_is_no_better(paths: Paths) -> None:
    packet = roce.acknowledge()
    paths.ask(times=BEHIND_MIN)
    assert paths.port(packet) == PRIMARY
    paths.answer(paths.send(BACKUP))
    assert paths.port(packet) == BACKUP
    paths.send(BACKUP)
    assert paths.port(packet) == BACKUP, "a pulse is under way"
    paths.send(BACKUP)
    assert paths.port(packet) == PRIMARY


def test_a_backup_that_was_not_asked_meanwhile_will_do(paths: Paths) -> None:
    """It is asked one turn in nine before something is amiss."""
    for _ in range(BEHIND_MIN):
        paths.send(PRIMARY)
    assert paths.port(roce.acknowledge()) == BACKUP


def test_acknowledgements_come_back_with_the_first_answer(paths: Paths) -> None:
    packet = roce.acknowledge()
    paths.ask(BACKUP, times=BEHIND_MIN)
    assert paths.port(packet) == BACKUP
    paths.answer(paths.send(PRIMARY))
    assert paths.port(packet) == PRIMARY


def test_acknowledgements_without_a_backup_stay(dataplane: Machine) -> None:
    paths = Paths(dataplane)
    dataplane.steer(paths.packet, Steer(PRIMARY))
    paths.ask(PRIMARY, BACKUP)
    paths.ask(BACKUP, times=BEHIND_MIN)
    assert paths.port(roce.acknowledge()) == PRIMARY


@pytest.mark.timeout(60)
def test_in_real_time(dataplane: Machine) -> None:
    """With times as they are used: some milliseconds of silence, some of health."""
    paths = Paths(dataplane)
    settings = dataplane.maps.control
    settings["dead_after_ns"], settings["hold_down_ns"] = 20_000_000, 40_000_000
    paths.ask(PRIMARY, BACKUP)
    start = time.monotonic_ns()
    while paths.port() == PRIMARY:
        paths.ask(BACKUP, times=1)
    assert time.monotonic_ns() - start >= 20_000_000
    start = time.monotonic_ns()
    while paths.port() == BACKUP:
        paths.ask(PRIMARY, BACKUP, times=1)
    assert time.monotonic_ns() - start >= 40_000_000
    assert [int(event["kind"]) for event in events(dataplane)] == [EventKind.PATH_DOWN, EventKind.PATH_UP]
