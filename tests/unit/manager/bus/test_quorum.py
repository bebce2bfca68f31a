"""Who leads by a majority of registers, in a world of messages that are late or lost, servers that fail and managers that stop.

Never do two lead at once, each leader's epoch is above all before, and where most registers can be reached somebody leads soon.
"""

import heapq
import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from manager.bus.quorum import BEAT_S, LEASE_S, Ask, Quorum, Record

_Tell = Callable[[Ask, float], None]

ANSWER_S = 1.0
SEEDS = 20
WORLDS = int(os.environ.get("CWDP_LEASE_WORLDS", "2"))
"""Of each seed: so many worlds in one test."""


@dataclass
class _Server:
    """One with a register."""

    revision: int = 0
    record: Record | None = None
    is_up: bool = True
    waits: list[Callable[[], None]] | None = None
    """What has come while it stands still; None while it goes on."""

    def answer(self, rule: Quorum, ask: Ask) -> _Tell:
        """What becomes of what is asked, to be told to the rule."""
        if ask.record is not None:
            if ask.revision != self.revision:
                return rule.refused
            self.revision, self.record = self.revision + 1, ask.record
        revision, record = self.revision, self.record
        if ask.record is not None:
            return lambda ask, now_s: rule.stored(ask, revision, now_s)
        return lambda ask, now_s: rule.found(ask, revision, record, now_s)


@dataclass
class _Manager:
    """One that tries to lead, with a clock of its own."""

    rule: Quorum
    rate: float
    ahead_s: float
    is_up: bool = True
    waits: list[Callable[[], None]] | None = None
    wake: int = 0
    cut: set[int] = field(default_factory=set)
    """Servers that it cannot reach."""


class _World:
    """Virtual time; `slow` is the share of messages that take up to seconds, `lost` of those that never come."""

    def __init__(
        self, seed: int, managers: int, servers: int = 3, *, slow: float = 0.0, lost: float = 0.0
    ) -> None:
        self.draw = random.Random(seed)
        self.now_s = 1e9
        self.servers = [_Server() for _ in range(servers)]
        self.managers: list[_Manager] = []
        self.led: list[tuple[float, int, str]] = []
        self.led_s = 0.0
        self.longest_s = 0.0
        self._unled_s: float | None = self.now_s
        self._slow, self._lost = slow, lost
        self._names = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        for _ in range(managers):
            self.start()

    def start(self, gone: str | None = None) -> _Manager:
        name = f"m{next(self._names)}"
        rule = Quorum(name, name, len(self.servers), random.Random(self.draw.random()))
        rule.gone = gone
        manager = _Manager(rule, self.draw.uniform(0.98, 1.02), self.draw.uniform(-1e6, 1e6))
        self.managers.append(manager)
        self.later(self.draw.uniform(0, 0.1), lambda: self._go_on(manager))
        return manager

    def later(self, after_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + after_s, next(self._count), what))

    def run(self, for_s: float) -> None:
        until_s = self.now_s + for_s
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self._events)
            what()
            self._look()
        self.now_s = until_s
        self._look()

    def clock_s(self, manager: _Manager) -> float:
        return self.now_s * manager.rate + manager.ahead_s

    def leaders(self) -> list[_Manager]:
        return [each for each in self.managers if each.is_up and each.rule.leads(self.clock_s(each))]

    def holder(self) -> _Manager:
        (leader,) = self.leaders()
        return leader

    def _look(self) -> None:
        leaders = self.leaders()
        assert len(leaders) < 2, [each.rule.name for each in leaders]
        if not leaders:
            self._unled_s = self.now_s if self._unled_s is None else self._unled_s
            return
        if self._unled_s is not None:
            self.longest_s = max(self.longest_s, self.now_s - self._unled_s)
            self._unled_s = None
        rule = leaders[0].rule
        if not self.led or self.led[-1][1:] != (rule.epoch, rule.name):
            assert not self.led or rule.epoch > self.led[-1][1]
            has_led = [name for _, _, name in self.led]
            last = has_led[-1] if has_led else None
            assert rule.others_led or last == rule.name
            self.led.append((self.now_s, rule.epoch, rule.name))

    @property
    def unled_s(self) -> float:
        return 0.0 if self._unled_s is None else self.now_s - self._unled_s

    def _do(self, whose: _Manager | _Server, what: Callable[[], None]) -> None:
        if whose.waits is not None:
            whose.waits.append(what)
        elif whose.is_up:
            what()

    def _go_on(self, manager: _Manager) -> None:
        """What its loop does: ask what is due, and look again when something may be."""
        if not manager.is_up:
            return
        now_s = self.clock_s(manager)
        for ask in manager.rule.due(now_s, self.now_s):
            self._send(manager, ask)
        manager.wake += 1
        wake = manager.wake

        def again() -> None:
            if manager.wake == wake:
                self._go_on(manager)

        pause_s = max(0.001, manager.rule.pause_s(self.clock_s(manager)))
        self.later(pause_s, lambda: self._do(manager, again))

    def _delay_s(self) -> float:
        return (
            self.draw.uniform(0, 2.5) if self.draw.random() < self._slow else self.draw.uniform(0.0005, 0.01)
        )

    def _send(self, manager: _Manager, ask: Ask) -> None:
        owed = [True]

        def settle(tell: _Tell) -> None:
            if owed[0] and manager.is_up:
                owed[0] = False
                tell(ask, self.clock_s(manager))
                self._go_on(manager)

        def back(tell: _Tell) -> None:
            if ask.register not in manager.cut and self.draw.random() >= self._lost:
                self.later(self._delay_s(), lambda: self._do(manager, lambda: settle(tell)))

        def arrive() -> None:
            server = self.servers[ask.register]
            if ask.register in manager.cut or self.draw.random() < self._lost:
                return
            if server.is_up:
                self._do(server, lambda: back(server.answer(manager.rule, ask)))
            elif self.draw.random() < 0.5:
                back(manager.rule.failed)

        self.later(self._delay_s(), arrive)
        self.later(ANSWER_S, lambda: self._do(manager, lambda: settle(manager.rule.failed)))

    def kill(self, manager: _Manager) -> None:
        manager.is_up, manager.waits = False, None
        self.managers.remove(manager)

    def stop(self, whose: _Manager | _Server, for_s: float) -> None:
        """It stands still for a while, and then does all at once that has come meanwhile."""
        if whose.waits is not None or not whose.is_up:
            return
        whose.waits = []

        def resume() -> None:
            waiting, whose.waits = whose.waits or [], None
            for what in waiting:
                self._do(whose, what)

        self.later(for_s, resume)

    def crash(self, server: _Server, for_s: float, *, wiped: bool = False) -> None:
        """It is gone for a while; what it has not answered is lost, and its disk too where it is `wiped`."""
        if server.waits is not None or not server.is_up:
            return
        server.is_up = False

        def start() -> None:
            server.is_up = True
            if wiped:
                server.revision, server.record = 0, None

        self.later(for_s, start)

    def cut_off(self, manager: _Manager, servers: set[int], for_s: float) -> None:
        manager.cut |= servers
        self.later(for_s, lambda: manager.cut.difference_update(servers))


def _trouble(world: _World) -> None:
    """Anything that fails, for a while."""
    for_s, draw = world.draw.choice([0.3, 2.0, 6.0, 20.0]), world.draw
    manager, number = draw.choice(world.managers), draw.randrange(len(world.servers))
    server = world.servers[number]
    kind = draw.randrange(8)
    if kind == 0:
        world.crash(server, for_s)
    elif kind == 1:
        world.stop(server, for_s)
    elif kind == 2:
        world.stop(manager, for_s)
    elif kind == 3:
        world.cut_off(manager, set(range(len(world.servers))), for_s)
    elif kind == 4:
        world.cut_off(manager, {number}, for_s)
    elif kind == 5:
        for each in world.managers:
            world.cut_off(each, {number}, for_s)
    elif kind == 6:
        world.kill(manager)
        world.start(gone=manager.rule.manager if draw.random() < 0.5 else None)
    else:
        leaders = world.leaders()
        if leaders:
            world.stop(leaders[0], for_s)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_never_do_two_lead_whatever_fails_and_somebody_does_once_nothing_fails(seed: int) -> None:
    for number in range(WORLDS):
        draw = random.Random(f"{seed} {number}")
        servers = draw.choice([1, 3, 3, 3])
        world = _World(
            draw.randrange(1 << 30),
            draw.choice([2, 2, 3, 5]),
            servers,
            slow=draw.choice([0.0, 0.01, 0.2]),
            lost=draw.choice([0.0, 0.01, 0.2]),
        )
        for _ in range(draw.randrange(5, 25)):
            world.run(draw.uniform(0, 4.0))
            _trouble(world)
        world.run(22.0)
        world._slow = world._lost = 0.0
        world.run(8.0)
        assert world.unled_s == 0.0
        epoch = world.led[-1][1]
        world.run(10.0)
        assert world.led[-1][1] == epoch


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_server_after_the_other_that_fails_and_comes_back_leaves_the_leader_in_peace(seed: int) -> None:
    for number in range(WORLDS):
        draw = random.Random(f"{seed} {number}")
        world = _World(draw.randrange(1 << 30), 3, slow=draw.choice([0.0, 0.001]))
        world.run(5.0)
        assert world.unled_s == 0.0
        for _ in range(6):
            failing, for_s = draw.randrange(3), draw.choice([0.2, 3.0, 30.0])
            server = world.servers[failing]
            kind = draw.randrange(4)
            if kind == 0:
                world.stop(server, for_s)
            elif kind == 1:
                for each in world.managers:
                    world.cut_off(each, {failing}, for_s)
            else:
                world.crash(server, for_s, wiped=kind == 3)
            world.run(for_s + LEASE_S + 2.0)
        assert len(world.led) == 1
        assert world.longest_s < 1.0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_leads_is_followed_after_the_lease_and_a_beat(seed: int) -> None:
    for number in range(WORLDS):
        draw = random.Random(f"{seed} {number}")
        world = _World(draw.randrange(1 << 30), draw.choice([2, 3, 5]))
        world.run(5.0)
        for _ in range(3):
            world.run(draw.uniform(0.0, 3.0))
            leader = world.holder()
            kind, world.longest_s = draw.randrange(4), 0.0
            if kind == 3:
                world.crash(draw.choice(world.servers), 6.0)
            if kind == 0:
                world.stop(leader, 10.0)
            elif kind == 1:
                world.cut_off(leader, {0, 1, 2}, 10.0)
            else:
                world.kill(leader)
                world.start()
            world.run(12.0)
            assert world.unled_s == 0.0
            assert world.longest_s < (LEASE_S + 2 * BEAT_S) * 1.02 + (0.5 if kind == 3 else 0.0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_of_many_that_each_reach_some_servers_only_one_leads_soon(seed: int) -> None:
    for number in range(WORLDS):
        draw = random.Random(f"{seed} {number}")
        world = _World(draw.randrange(1 << 30), draw.choice([2, 4, 8]))
        for each in world.managers:
            each.cut = {draw.randrange(3)} if draw.random() < 0.7 else set()
        world.run(20.0)
        assert world.unled_s == 0.0
        assert world.longest_s < LEASE_S + 2.0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_disks_that_are_lost_bring_no_earlier_leader_back(seed: int) -> None:
    """One after the other, with everything else that fails."""
    for number in range(WORLDS):
        draw = random.Random(f"{seed} {number}")
        world = _World(
            draw.randrange(1 << 30), 3, slow=draw.choice([0.0, 0.05]), lost=draw.choice([0.0, 0.05])
        )
        for _ in range(12):
            world.run(draw.uniform(0, 4.0))
            if draw.random() < 0.6:
                world.crash(draw.choice(world.servers), draw.choice([0.2, 1.0, 8.0]), wiped=True)
                world.run(LEASE_S * 1.02)
            else:
                _trouble(world)
        world.run(30.0)
        world._slow = world._lost = 0.0
        world.run(10.0)
        assert world.unled_s == 0.0


def test_who_ends_gives_up_what_it_holds_and_asks_for_nothing_more() -> None:
    world = _World(1, 1)
    world.run(5.0)
    rule = world.holder().rule
    assert rule.end() == [0, 1, 2]
    assert not rule.leads(world.clock_s(world.managers[0]))
    assert rule.due(world.clock_s(world.managers[0]) + 10.0, world.now_s) == []
    record = world.servers[0].record
    assert record is not None
    assert (rule.nobody(record).manager, rule.nobody(record).epoch) == ("", record.epoch)
