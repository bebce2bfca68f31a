"""While nobody sends pulses: a queue pair that is not heard takes its other path."""

import pytest
import roce
from machine import Machine
from pulses import BACKUP, DEAD_AFTER_NS, HOLD_DOWN_NS, PRIMARY, SECOND_NS, UNANSWERED_MIN, Paths
from scapy.packet import Packet

from cwdp.dataplane.abi import PathState, Reason
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

PSN_SEQUENCE_ERROR = 0x60
UNASKED_NS = 10 * DEAD_AFTER_NS + SECOND_NS


@pytest.fixture
def paths(dataplane: Machine) -> Paths:
    """Two paths that answered; each kind of packet has left once, by the primary."""
    made = Paths(dataplane)
    made.ask(PRIMARY, BACKUP)
    for packet in (made.packet, roce.acknowledge(), response()):
        assert made.port(packet) == PRIMARY
    return made


def response(psn: int = roce.PSN) -> Packet:
    """Data that a READ asked for."""
    return roce.data("RC_READ_RESPONSE_ONLY", psn=psn)


SAID = pytest.mark.parametrize(
    ("again", "new"),
    [
        (roce.data(), roce.data(psn=roce.PSN + 1)),
        (roce.acknowledge(), roce.acknowledge(psn=roce.PSN + 1)),
        (response(), response(roce.PSN + 1)),
    ],
    ids=["request", "ACK", "response"],
)


@SAID
def test_what_is_said_again_leaves_by_the_backup_and_all_that_follows(
    paths: Paths, again: Packet, new: Packet
) -> None:
    paths.pass_time(UNASKED_NS)
    run = paths.dataplane.leave(again)
    assert run.dissected["UDP"].sport == BACKUP
    assert run.counted == {Reason.PATH_DOUBTED: 1, Reason.STEER_REWRITTEN: 1}
    assert paths.port(new) == BACKUP
    assert paths.state(PRIMARY) == PathState.UP


@SAID
def test_while_all_goes_on_it_stays(paths: Paths, again: Packet, new: Packet) -> None:
    """However long no pulse has left; an answer that got lost shows as something said again."""
    del again
    paths.pass_time(100 * UNASKED_NS)
    assert paths.port(new) == PRIMARY


@SAID
def test_while_pulses_are_sent_they_tell(paths: Paths, again: Packet, new: Packet) -> None:
    """Packets are lost to full queues too."""
    del new
    assert paths.port(again) == PRIMARY
    paths.pass_time(UNASKED_NS - 2 * SECOND_NS)
    assert paths.port(again) == PRIMARY


@pytest.mark.parametrize("name", ["RC_SEND_ONLY", "RC_READ_RESPONSE_ONLY"])
def test_one_that_is_connected_anew_goes_on_from_where_it_began(paths: Paths, name: str) -> None:
    """Its PSNs may lie behind those of who had the number before."""
    began = roce.PSN - 1000
    assert paths.port(roce.data(name, psn=began)) == PRIMARY
    paths.pass_time(UNASKED_NS)
    for further in range(1, 200):
        assert paths.port(roce.data(name, psn=began + further)) == PRIMARY
    assert paths.port(roce.data(name, psn=began + 100)) == BACKUP


def test_a_pulse_makes_it_void(paths: Paths) -> None:
    paths.pass_time(UNASKED_NS)
    assert paths.port() == BACKUP
    paths.ask(PRIMARY, BACKUP, times=1)
    assert paths.port() == PRIMARY


def test_back_where_the_backup_is_not_heard_either(paths: Paths) -> None:
    """Not at once: what was on its way when it moved is said again too."""
    paths.pass_time(UNASKED_NS)
    for port in (BACKUP, PRIMARY, BACKUP):
        assert paths.port() == port
        assert paths.port() == port
        paths.pass_time(UNASKED_NS)


def test_a_path_that_was_given_up_is_not_taken(paths: Paths) -> None:
    """It was silent when a pulse left last."""
    paths.fail_primary()
    paths.pass_time(HOLD_DOWN_NS + UNASKED_NS)
    assert paths.port() == BACKUP
    paths.pass_time(UNASKED_NS)
    assert paths.port() == BACKUP


def test_a_backup_that_was_given_up_is_not_taken(dataplane: Machine) -> None:
    paths = Paths(dataplane)
    dataplane.steer(other := roce.data(dqpn=77), Steer(BACKUP, PRIMARY))
    paths.ask(PRIMARY, BACKUP)
    paths.ask(PRIMARY)
    paths.pass_time(DEAD_AFTER_NS + SECOND_NS)
    paths.ask(PRIMARY, times=1)
    assert paths.port(other) == PRIMARY
    paths.port()
    paths.pass_time(UNASKED_NS)
    assert paths.port() == PRIMARY


def test_all_queue_pairs_of_the_path_leave_it(dataplane: Machine) -> None:
    paths = Paths(dataplane)
    dataplane.steer(other := roce.data(dqpn=77), Steer(PRIMARY, BACKUP))
    paths.ask(PRIMARY, BACKUP)
    paths.port()
    paths.pass_time(UNASKED_NS)
    assert paths.port() == BACKUP
    assert paths.port(other) == BACKUP


def test_without_a_backup_it_stays(dataplane: Machine) -> None:
    paths = Paths(dataplane)
    dataplane.steer(paths.packet, Steer(PRIMARY))
    paths.ask(PRIMARY)
    for _ in range(2):
        paths.pass_time(UNASKED_NS)
        assert paths.port() == PRIMARY


def test_where_no_pulse_ever_left_it_stays(dataplane: Machine) -> None:
    """Nobody has begun to watch the paths."""
    paths = Paths(dataplane)
    for _ in range(2):
        paths.pass_time(UNASKED_NS)
        assert paths.port() == PRIMARY


def test_a_nak_is_nothing_said_again(paths: Paths) -> None:
    """It says what the far end has to send again."""
    paths.pass_time(UNASKED_NS)
    for _ in range(2):
        assert paths.port(roce.acknowledge(PSN_SEQUENCE_ERROR)) == PRIMARY


def test_pulses_that_are_not_answered_are_pulses(paths: Paths) -> None:
    paths.pass_time(UNASKED_NS)
    paths.ask(times=UNANSWERED_MIN)
    assert paths.port() == PRIMARY
