"""Which of a host's watched paths have a pulse when: every one where they are few, else a cover of the fabric's links."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.liveness.cover import NO_LINK, Crossings, cover
from cwdp.agent.liveness.coveredpaths import CoveredPaths
from cwdp.agent.liveness.everypath import BURST_TURNS, CALM_TURNS, EveryPath
from cwdp.agent.liveness.plan import (
    BACKUP_EVERY,
    BURST_PER_S,
    BURST_PULSES,
    DENSE_BELOW,
    REGULAR_PER_S,
    TokenBucket,
    Watched,
)
from cwdp.dataplane.abi import PathState

MOST_PER_S = REGULAR_PER_S + BURST_PER_S + BURST_PULSES
TURN_NS, DEAD_AFTER_NS = 2_000_000, 10_000_000
FIELDS = ("unanswered", "state", "slow_ns", "waiting_since_ns", "answered_sent_ns")


class Paths:
    """What the dataplane would know: each pulse is answered at once but those over dead links."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.fields = {name: np.zeros(len(watched), dtype=np.uint64) for name in FIELDS}
        self.sent, self.answered = np.zeros((2, len(watched)), dtype=bool)
        self.dead: set[int] = set()
        self.mute = np.zeros(len(watched), dtype=bool)

    def read(self, name: str) -> NDArray[np.uint64]:
        return self.fields[name]

    def heard(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        return self.sent, self.answered & ~self._silent()

    def send(self, rows: NDArray[np.intp], now_ns: int) -> None:
        assert len(set(rows.tolist())) == len(rows)
        lost = rows[self._silent()[rows]]
        self.fields["waiting_since_ns"][lost] = np.where(
            self.fields["unanswered"][lost] > 0, self.fields["waiting_since_ns"][lost], now_ns
        )
        self.fields["unanswered"][lost] += np.uint64(1)
        came = rows[~self._silent()[rows]]
        self.fields["unanswered"][came] = 0
        self.fields["answered_sent_ns"][came] = now_ns

    def _silent(self) -> NDArray[np.bool_]:
        crossed: NDArray[np.bool_] = np.logical_or.reduce(
            np.isin(self.watched.links, list(self.dead)), axis=1
        )
        return crossed | self.mute


def _few(primary: list[bool]) -> Watched:
    count = len(primary)
    links = np.arange(count)[:, None]
    return Watched(np.zeros((0, 2), np.intp), np.array(primary), np.zeros(count, bool), links)


def _path_and_backup() -> tuple[EveryPath, Paths]:
    paths = Paths(_few([True, False]))
    return EveryPath(paths.watched, paths, TokenBucket(BURST_TURNS * CALM_TURNS)), paths


def _rounds(plan: EveryPath, count: int) -> list[list[int]]:
    return [plan.turn(0)[0].tolist() for _ in range(count)]


something_wrong = pytest.mark.parametrize(
    ("column", "value"), [("unanswered", 2), ("state", PathState.DOWN)], ids=["unanswered", "down"]
)


def test_a_path_that_only_backs_others_up_has_a_pulse_now_and_then() -> None:
    plan, _ = _path_and_backup()
    rounds = _rounds(plan, 4 * BACKUP_EVERY)
    assert rounds.count([0, 1]) == 4
    assert rounds.count([0]) == len(rounds) - 4


@something_wrong
def test_backups_have_every_pulse_while_something_is_wrong(column: str, value: int) -> None:
    plan, paths = _path_and_backup()
    paths.fields[column][0] = value
    assert _rounds(plan, BACKUP_EVERY) == [[0, 1]] * BACKUP_EVERY
    paths.fields[column][0] = 0
    assert _rounds(plan, BACKUP_EVERY).count([0]) == BACKUP_EVERY - 1


@something_wrong
def test_bursts_that_do_not_end_are_given_up_and_can_be_sent_again_after_a_calm(
    column: str, value: int
) -> None:
    plan, paths = _path_and_backup()
    paths.fields[column][0] = value
    assert _rounds(plan, BURST_TURNS) == [[0, 1]] * BURST_TURNS
    assert _rounds(plan, BACKUP_EVERY).count([0]) == BACKUP_EVERY - 1
    assert not plan.turn(0)[1]
    paths.fields[column][0] = 0
    _rounds(plan, 5 * CALM_TURNS)
    paths.fields[column][0] = value
    assert _rounds(plan, 5) == [[0, 1]] * 5
    assert _rounds(plan, BACKUP_EVERY).count([0]) == BACKUP_EVERY - 1


def test_a_backup_that_is_dead_itself_wakes_nobody_for_long() -> None:
    plan, paths = _path_and_backup()
    paths.fields["unanswered"][1] = DENSE_BELOW
    assert _rounds(plan, BACKUP_EVERY).count([0]) == BACKUP_EVERY - 1


@pytest.mark.parametrize(
    ("unanswered", "state", "urgent"),
    [(0, "UP", []), (1, "UP", []), (2, "UP", [1]), (15, "UP", [1]), (16, "UP", []), (5, "DOWN", [])],
)
def test_only_a_path_about_to_be_given_up_is_asked_between_turns(
    unanswered: int, state: str, urgent: list[int]
) -> None:
    paths = Paths(_few([True, True]))
    plan = EveryPath(paths.watched, paths, TokenBucket(BURST_TURNS * CALM_TURNS))
    paths.fields["unanswered"][1], paths.fields["state"][1] = unanswered, PathState[state]
    assert plan.turn(0)[1] == (0 < unanswered < DENSE_BELOW and state == "UP")
    assert plan.between(0).tolist() == urgent


@pytest.mark.parametrize("seed", range(5))
def test_a_cover_crosses_every_link_that_the_wanted_paths_cross_and_each_of_it_is_needed_in_turn(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    links = rng.integers(NO_LINK, 60, (300, 4))
    wanted = rng.choice(300, 200, replace=False)
    chosen = cover(links, wanted)
    assert set(chosen.tolist()) <= set(wanted.tolist())
    crossed: set[int] = {NO_LINK}
    for row in chosen.tolist():
        assert not set(links[row].tolist()) <= crossed
        crossed |= set(links[row].tolist())
    assert crossed - {NO_LINK} == set(links[wanted].ravel().tolist()) - {NO_LINK}
    assert len(cover(links, np.zeros(0, np.intp))) == 0


def test_what_crosses_a_link() -> None:
    links = np.array([[0, 2], [1, 2], [1, NO_LINK]])
    crossings = Crossings(links)
    assert crossings.latest(np.array([5, 7, 6], dtype=np.uint64))[:3].tolist() == [5, 7, 7]
    over = crossings.over(np.array([True, False, False]))
    assert over[:3].tolist() == [True, False, True]
    assert not over[NO_LINK]
    assert crossings.of_any(over).tolist() == [True, True, False]


SPINES = 8


def _many(peers: int, leaves: int, rng: np.random.Generator) -> Watched:
    """One NIC, a primary and a backup to each peer over other spines; link 0 is the NIC's own."""
    rows: list[tuple[int, int, int]] = []
    for _ in range(peers):
        leaf = int(rng.integers(leaves))
        spines = rng.choice(SPINES, 2, replace=False).tolist()
        rows.extend((0, 1 + spine, 1 + SPINES + leaf * SPINES + spine) for spine in spines)
    count = len(rows)
    return Watched(
        np.arange(count).reshape(-1, 2), np.arange(count) % 2 == 0, np.zeros(count, bool), np.array(rows)
    )


class Clocked:
    """A plan of many paths, half turn by half turn."""

    def __init__(self, watched: Watched) -> None:
        self.paths = Paths(watched)
        self._plan = CoveredPaths(watched, self.paths, TokenBucket(BURST_PULSES), TURN_NS, DEAD_AFTER_NS)
        self.now_ns = TURN_NS
        self._middle = False

    def half(self) -> list[int]:
        """Who has a pulse now."""
        rows = self._plan.between(self.now_ns) if self._middle else self._plan.turn(self.now_ns)[0]
        self._middle = not self._middle
        self.paths.send(rows, self.now_ns)
        self.now_ns += TURN_NS // 2
        asked: list[int] = rows.tolist()
        return asked

    def go(self, seconds: float) -> list[list[int]]:
        return [self.half() for _ in range(round(seconds * 1e9 / TURN_NS * 2))]


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def test_many_paths_are_not_few(rng: np.random.Generator) -> None:
    assert not _many(600, 4, rng).fits(TURN_NS)
    assert _few([True] * 20 + [False] * 20).fits(TURN_NS)


def test_every_link_is_crossed_often_and_every_path_is_asked_now_and_then(rng: np.random.Generator) -> None:
    clocked = Clocked(_many(600, 4, rng))
    clocked.go(0.1)
    sent = clocked.go(1.0)
    links = clocked.paths.watched.links
    assert sum(map(len, sent)) <= REGULAR_PER_S
    assert {row for rows in sent for row in rows} == set(range(len(links)))
    crossed = [set(links[rows].ravel().tolist()) for rows in sent]
    wanted = set(links[clocked.paths.watched.is_primary].ravel().tolist())
    for start in range(len(crossed) - 4):
        assert wanted <= set().union(*crossed[start : start + 4])


def test_a_link_that_queue_pairs_are_answered_over_needs_no_pulses(rng: np.random.Generator) -> None:
    """So that more are left for the others."""
    clocked = Clocked(_many(600, 40, rng))
    watched = clocked.paths.watched
    clocked.go(0.1)
    clocked.paths.sent = clocked.paths.answered = watched.is_primary & (rng.random(len(watched)) < 0.9)
    busy = set(watched.links[clocked.paths.sent].ravel().tolist())
    idle = set(watched.links[watched.is_primary].ravel().tolist()) - busy
    assert idle
    crossed = [set(watched.links[rows].ravel().tolist()) for rows in clocked.go(0.5)]
    for start in range(len(crossed) - 3):
        assert idle <= set().union(*crossed[start : start + 3])


def test_who_sends_and_hears_nothing_is_asked_next(rng: np.random.Generator) -> None:
    clocked = Clocked(_many(600, 4, rng))
    clocked.go(0.1)
    clocked.paths.sent = clocked.paths.answered = clocked.paths.watched.is_primary
    clocked.go(0.1)
    row = 2 * int(rng.integers(600))
    clocked.paths.mute[row] = True
    asked = [row in rows for rows in clocked.go(0.01)]
    assert any(asked[:2])
    assert sum(asked) >= 6


def test_all_that_share_a_dead_link_are_asked_closely_and_so_are_their_backups(
    rng: np.random.Generator,
) -> None:
    """And nobody else is more than once."""
    clocked = Clocked(_many(600, 4, rng))
    clocked.go(0.2)
    watched = clocked.paths.watched
    dead = 1 + int(rng.integers(SPINES))
    clocked.paths.dead = {dead}
    sent = clocked.go(0.014)
    times = np.bincount([row for rows in sent for row in rows], minlength=len(watched))
    crossing = (watched.links == dead).any(axis=1)
    hit = np.flatnonzero(watched.is_primary & crossing)
    assert (times[hit] >= 8).all()
    assert (times[hit + 1] >= 2).all()
    others = watched.is_primary & ~crossing
    assert times[others].mean() < 3
    assert max(map(len, sent)) <= MOST_PER_S * TURN_NS // 2_000_000_000 + 4 * len(hit)


def test_a_destination_that_is_dead_casts_no_doubt_on_the_links_to_it(rng: np.random.Generator) -> None:
    clocked = Clocked(_many(600, 4, rng))
    clocked.go(0.2)
    usual = sum(map(len, clocked.go(0.1)))
    row = 2 * int(rng.integers(600))
    clocked.paths.mute[[row, row + 1]] = True
    assert sum(map(len, clocked.go(0.1))) < usual + 200


def test_what_is_sent_in_bursts_is_limited(rng: np.random.Generator) -> None:
    clocked = Clocked(_many(600, 4, rng))
    clocked.go(0.2)
    for _ in range(3):
        for dead in range(1, 1 + SPINES):
            clocked.paths.dead = {dead, dead % SPINES + 1}
            assert sum(map(len, clocked.go(0.125))) <= MOST_PER_S / 8 + BURST_PULSES
    clocked.paths.dead = {0}
    assert sum(map(len, clocked.go(1.0))) <= MOST_PER_S


def test_who_sends_comes_first_where_the_token_bucket_is_empty(rng: np.random.Generator) -> None:
    """However many paths that nobody sends over are dead meanwhile."""
    clocked = Clocked(_many(600, 4, rng))
    watched = clocked.paths.watched
    row = 2 * int(rng.integers(600))
    clocked.paths.sent = np.arange(len(watched)) == row
    clocked.paths.answered = clocked.paths.sent
    clocked.go(0.2)
    spines = [link for link in range(1, 1 + SPINES) if link not in watched.links[row : row + 2]]
    for _ in range(4):
        for first in spines:
            clocked.paths.dead = set(spines) - {first}
            clocked.go(0.05)
    clocked.paths.mute[row] = True
    sent = clocked.go(0.014)
    assert sum(row in rows for rows in sent) >= 8
    assert sum(row + 1 in rows for rows in sent) >= 2


def test_the_backup_of_a_dead_path_is_in_use(rng: np.random.Generator) -> None:
    """So the links that it crosses are covered too."""
    clocked = Clocked(_many(300, 100, rng))
    watched = clocked.paths.watched
    clocked.go(0.1)
    before = set(watched.links[watched.is_primary].ravel().tolist())
    row = next(i for i in range(1, len(watched), 2) if not set(watched.links[i].tolist()) <= before)
    clocked.paths.mute[row - 1], clocked.paths.fields["state"][row - 1] = True, PathState.DOWN
    clocked.go(1.0)
    only = (set(watched.links[row].tolist()) - before).pop()
    crossed = [only in watched.links[rows] for rows in clocked.go(0.5)]
    gaps = np.diff(np.flatnonzero(crossed))
    assert gaps.max() <= 30
