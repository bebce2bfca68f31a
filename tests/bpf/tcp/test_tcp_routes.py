"""Which path a steered connection takes as its paths fall silent and come back, by what is known of their pulses."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from machine import Machine
from scapy.layers.l2 import Ether
from segments import PORTS, acknowledgement, announcement_back, connection, segment

from cwdp.dataplane.abi import PathState
from cwdp.dataplane.steering.tcp import TcpSteer, TcpSteering

pytestmark = pytest.mark.kernel

SPORT, BACKUP = 50_001, 60_002
OWN = PORTS[0]
MS = 1_000_000
DEAD_AFTER_MS = 1_000
"""So long that how fast a test runs is of no account."""

RETURN_MS, OWN_PORTS_MS = 4 * DEAD_AFTER_MS, 10 * DEAD_AFTER_MS


class Steered:
    """A connection, and its paths as they are said to be."""

    def __init__(self, dataplane: Machine, backup: int | None) -> None:
        self._dataplane, self._maps = dataplane, dataplane.maps
        self._steering = TcpSteering(dataplane.maps)
        self._steering.set(connection(), TcpSteer(SPORT, backup))
        (self._number,) = np.flatnonzero(self._maps.tcp_conns["flags"])
        self._dead_after_ns = self._maps.control["dead_after_ns"].copy()
        self._maps.control["dead_after_ns"] = DEAD_AFTER_MS * MS
        for sport in {SPORT, backup} - {None}:
            self.answers(sport)
        dataplane.ingress(announcement_back())

    def _write(self, sport: int, **fields: int) -> None:
        (path,) = np.flatnonzero(self._maps.paths["sport"] == sport)
        for name, value in fields.items():
            self._maps.paths[name][path] = value

    def answers(self, sport: int, state: PathState = PathState.UP) -> None:
        """A path's pulses are answered."""
        now_ns = time.monotonic_ns()
        self._write(
            sport,
            state=state,
            unanswered=0,
            waiting_since_ns=now_ns - 2 * MS,
            answered_sent_ns=now_ns - 2 * MS,
            last_answer_ns=now_ns - MS,
        )

    def silent(self, sport: int, for_ms: int, state: PathState = PathState.UP) -> None:
        """A path's pulses go unanswered."""
        since_ns = time.monotonic_ns() - for_ms * MS
        self._write(
            sport,
            state=state,
            unanswered=50,
            waiting_since_ns=since_ns,
            answered_sent_ns=since_ns - 2 * MS,
            last_answer_ns=since_ns - MS,
        )

    def late(self, sport: int, unanswered: int = 2) -> None:
        """A path's last pulses are not answered yet; it is not silent."""
        now_ns = time.monotonic_ns()
        self._write(
            sport, unanswered=unanswered, waiting_since_ns=now_ns - 100 * MS, last_answer_ns=now_ns - 101 * MS
        )

    def passes(self, ms: int) -> None:
        """So much time goes by since it was last seen that what it left is not alive."""
        self._maps.tcp_conns["left_ns"][self._number] -= np.uint64(ms * MS)

    def acknowledged(self, ack: int, *, data: bool = False) -> None:
        """The far end's word comes in."""
        self._dataplane.ingress(acknowledgement(ack, data=data))

    def since_acknowledged(self, ms: int) -> None:
        """So much time goes by since the far end acknowledged something."""
        self._maps.tcp_conns["acked_ns"][self._number] -= np.uint64(ms * MS)

    def moves(self) -> None:
        """It is steered over the same paths anew."""
        self._steering.set(connection(), TcpSteer(BACKUP, SPORT))

    def sport(self) -> int:
        """Of the next segment, a jiffy or more after the last."""
        self._maps.tcp_conns["tick"][self._number] ^= 0x8000
        self._maps.tcp_conns["confirmed_ns"][self._number] = time.monotonic_ns()
        return int(Ether(self._dataplane.leave(segment()).packet)["TCP"].sport)

    def close(self) -> None:
        self._steering.unset(connection())
        self._maps.control["dead_after_ns"] = self._dead_after_ns


@pytest.fixture
def steered(dataplane: Machine) -> Iterator[Steered]:
    made = Steered(dataplane, BACKUP)
    yield made
    made.close()


@pytest.fixture
def alone(dataplane: Machine) -> Iterator[Steered]:
    """Without a backup."""
    made = Steered(dataplane, None)
    yield made
    made.close()


def test_while_both_are_silent_it_stays_where_it_is(steered: Steered) -> None:
    steered.silent(SPORT, 2 * DEAD_AFTER_MS + 3)
    steered.silent(BACKUP, 2 * DEAD_AFTER_MS)
    assert steered.sport() == SPORT
    steered.silent(SPORT, 2 * DEAD_AFTER_MS)
    steered.silent(BACKUP, 2 * DEAD_AFTER_MS + 3)
    assert steered.sport() == SPORT


@pytest.mark.parametrize(("first", "last"), [(SPORT, BACKUP), (BACKUP, SPORT)])
def test_or_goes_where_answers_came_from_last(steered: Steered, first: int, last: int) -> None:
    steered.silent(first, 8 * DEAD_AFTER_MS)
    steered.silent(last, 2 * DEAD_AFTER_MS)
    assert steered.sport() == last
    steered.silent(first, 3 * DEAD_AFTER_MS)
    assert steered.sport() == last


def test_and_by_its_own_ports_once_that_has_lasted(steered: Steered) -> None:
    steered.silent(SPORT, OWN_PORTS_MS + 500)
    steered.silent(BACKUP, OWN_PORTS_MS - 500)
    assert steered.sport() != OWN
    steered.silent(BACKUP, OWN_PORTS_MS + 500)
    assert steered.sport() == OWN


@pytest.mark.parametrize("first", [SPORT, BACKUP])
def test_from_its_own_ports_to_a_path_that_has_been_alive(steered: Steered, first: int) -> None:
    for sport in (SPORT, BACKUP):
        steered.silent(sport, OWN_PORTS_MS + 500)
    assert steered.sport() == OWN
    steered.answers(first)
    assert steered.sport() == OWN
    steered.silent(first, 2 * DEAD_AFTER_MS)
    assert steered.sport() == OWN
    steered.answers(first)
    steered.passes(RETURN_MS - 500)
    assert steered.sport() == OWN
    steered.passes(500)
    assert steered.sport() == first


def test_a_late_path_is_gone_back_to_when_it_has_been_alive(steered: Steered) -> None:
    steered.late(SPORT)
    assert steered.sport() == BACKUP
    steered.answers(SPORT)
    assert steered.sport() == BACKUP
    steered.passes(RETURN_MS - 500)
    assert steered.sport() == BACKUP
    steered.late(SPORT)
    steered.passes(RETURN_MS)
    assert steered.sport() == BACKUP
    steered.answers(SPORT)
    assert steered.sport() == BACKUP
    steered.passes(RETURN_MS)
    assert steered.sport() == SPORT
    steered.late(SPORT)
    assert steered.sport() == BACKUP


def test_paths_that_are_late_in_turns_have_it_move_once(steered: Steered) -> None:
    taken = []
    for turn in range(20):
        steered.late((SPORT, BACKUP)[turn % 2])
        steered.answers((BACKUP, SPORT)[turn % 2])
        taken.append(steered.sport())
        steered.passes(RETURN_MS // 8)
    assert taken == [BACKUP] * 20


def leaves_and_goes_back(steered: Steered) -> None:
    """Its path is late, then its backup silent; both answer in the end."""
    steered.late(SPORT)
    assert steered.sport() == BACKUP
    steered.answers(SPORT)
    steered.silent(BACKUP, 2 * DEAD_AFTER_MS)
    assert steered.sport() == SPORT
    steered.answers(BACKUP)


def test_a_silent_backup_is_left_at_once(steered: Steered) -> None:
    leaves_and_goes_back(steered)
    steered.late(SPORT)
    assert steered.sport() == SPORT
    steered.passes(RETURN_MS)
    assert steered.sport() == BACKUP


def test_and_so_is_a_silent_path_that_was_gone_back_to(steered: Steered) -> None:
    leaves_and_goes_back(steered)
    steered.silent(SPORT, 2 * DEAD_AFTER_MS)
    assert steered.sport() == BACKUP


def test_a_backup_that_is_held_down_is_better_than_a_silent_path(steered: Steered) -> None:
    steered.silent(SPORT, 2 * DEAD_AFTER_MS)
    steered.silent(BACKUP, 2 * DEAD_AFTER_MS, PathState.DOWN)
    assert steered.sport() == SPORT
    steered.answers(BACKUP, PathState.DOWN)
    assert steered.sport() == BACKUP


def test_without_a_backup_silence_has_it_take_its_own_ports(alone: Steered) -> None:
    alone.late(SPORT)
    assert alone.sport() == SPORT
    alone.silent(SPORT, 2 * DEAD_AFTER_MS)
    assert alone.sport() == OWN
    alone.answers(SPORT)
    assert alone.sport() == OWN
    alone.passes(RETURN_MS)
    assert alone.sport() == SPORT


def test_a_connection_that_is_moved_has_left_nothing(steered: Steered) -> None:
    steered.late(SPORT)
    assert steered.sport() == BACKUP
    steered.answers(SPORT)
    steered.moves()
    assert steered.sport() == BACKUP
    steered.late(BACKUP)
    assert steered.sport() == SPORT


def test_while_what_is_sent_still_arrives_a_silent_path_is_not_left(steered: Steered) -> None:
    """As when its queue is full, and pulses are lost there."""
    for ack in (1, 2, 2):
        steered.silent(SPORT, 3 * DEAD_AFTER_MS)
        steered.acknowledged(ack)
        assert steered.sport() == SPORT
        steered.since_acknowledged(DEAD_AFTER_MS)
    assert steered.sport() == BACKUP


def test_nor_one_that_is_late_or_given_up_by_others(steered: Steered) -> None:
    steered.acknowledged(1)
    steered.late(SPORT)
    assert steered.sport() == SPORT
    steered.silent(SPORT, 3 * DEAD_AFTER_MS, PathState.DOWN)
    steered.acknowledged(2)
    assert steered.sport() == SPORT
    steered.since_acknowledged(DEAD_AFTER_MS)
    assert steered.sport() == BACKUP


def test_what_comes_in_and_acknowledges_nothing_new_shows_nothing(steered: Steered) -> None:
    steered.silent(SPORT, 3 * DEAD_AFTER_MS)
    steered.acknowledged(1)
    steered.since_acknowledged(DEAD_AFTER_MS)
    steered.acknowledged(1, data=True)
    assert steered.sport() == BACKUP


def test_nobody_can_keep_a_connection_on_a_dead_path_for_long(steered: Steered) -> None:
    steered.silent(SPORT, OWN_PORTS_MS + 500)
    steered.acknowledged(1)
    assert steered.sport() == BACKUP


def test_what_arrives_by_the_backup_says_nothing_of_the_path(steered: Steered) -> None:
    steered.silent(SPORT, 3 * DEAD_AFTER_MS)
    assert steered.sport() == BACKUP
    steered.acknowledged(1)
    assert steered.sport() == BACKUP
    steered.silent(BACKUP, 2 * DEAD_AFTER_MS)
    steered.acknowledged(2)
    steered.answers(SPORT)
    assert steered.sport() == SPORT


def test_without_a_backup_it_keeps_its_path_while_what_is_sent_arrives(alone: Steered) -> None:
    alone.silent(SPORT, 2 * DEAD_AFTER_MS)
    alone.acknowledged(1)
    assert alone.sport() == SPORT
    alone.since_acknowledged(DEAD_AFTER_MS)
    assert alone.sport() == OWN
