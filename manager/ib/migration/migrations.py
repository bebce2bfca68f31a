"""Which connections over InfiniBand take another path when, and what came of that. No I/O; see README.md."""

import errno
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from cwdp.shared.verbs import MigrationReport
from manager.config import PlannerSettings
from manager.faults.finding import Findings
from manager.hosts.happening import MOST_LISTED, Move, Moves
from manager.ib.migration.attempts import ANSWER_S, ORDER_S, Attempt, Attempts, Why
from manager.ib.migration.connections import Connections, Key
from manager.ib.migration.deciding import STATES, At, Look, Wish
from manager.ib.migration.room import Room
from manager.ib.migration.steps import Migration
from manager.ib.migration.targets import NAMED
from manager.ib.ports import Ports
from manager.overrides.steering import SteerTable
from manager.planner.moves import Budget
from manager.queue_pairs.traffic import Traffic
from manager.queue_pairs.verbs import Name

LOOK_S = 1.0
"""Between the beginnings of two looks at all connections, at least, where no fault, no subnet and no override has changed."""

LOOKED_AT_ONCE = 2_000
"""Connections then, in each step: some 10 ms. When something has changed it is all of them."""

MOST_AT_ONCE = 2_048
"""Attempts under way."""

LOADS_PER_S, LOADS_PER_HOST_S = 1_000.0, 32.0
"""Alternate paths that are loaded ahead in a second, in the fleet and at each host."""

KNOWN_S = 5.0
"""So long what an attempt has come to counts for more than what agents tell, who do so every other second."""

RESTS_S, RESTS_MOST_S = 1.0, 64.0
"""After an attempt that failed, twice as long each time."""

TOLD_S = 1.0
"""Between two looks at what is to be told."""

OUTCOMES = (
    "loaded", "operator", "fault", "follow", "room", "busy", "not_armed", "not_connected", "gone", "went_itself", "no_apm", "not_its_lid",
    "not_granted", "unanswered", "device",
)  # fmt: skip
"""What came of attempts: a path is loaded; a migration is done, by why; or why one has failed."""

_REASONS = {
    errno.EBUSY: "busy",
    errno.EAGAIN: "not_armed",
    errno.ENOTCONN: "not_connected",
    errno.ENOENT: "gone",
    errno.EALREADY: "went_itself",
    errno.EOPNOTSUPP: "no_apm",
    errno.EINVAL: "not_its_lid",
    errno.EPERM: "not_granted",
    errno.ETIMEDOUT: "unanswered",
}
_ORDER: Sequence[Why] = ("operator", "fault", "follow", "room", "backup")
_SHOWN: Mapping[Why, str] = {
    "operator": "as an operator wants it",
    "fault": "as a link or a switch of their path is faulty",
    "follow": "as the other end of each was there already",
    "room": "for room",
}
_NAMED_HOSTS = 3
_NS_PER_S = 1_000_000_000


class Note(Protocol):
    """Keeps an event."""

    def __call__(self, host: str, kind: str, detail: str, *, moves: Moves | None = None) -> None:
        """Of a host, or of the fleet; with the queue pairs that were moved."""


@dataclass
class _Round:
    """A look at all connections, some after the other.

    Attributes:
        look: what is held against them.
        able: hosts that take orders.
        wanted: the paths that operators want of connections, by number.
        left: those not looked at yet.
    """

    look: Look
    able: set[str]
    wanted: Mapping[Key, int]
    left: Iterator[Key]


@dataclass
class _Memory:
    """Of a connection.

    Attributes:
        number, loaded: as the last attempt has left it; that counts for more than what is told until `known_until_s`.
        rests_until_s, rests_for: nothing is tried again before, for that.
        failures: attempts in a row.
    """

    number: int | None = None
    loaded: int | None = None
    known_until_s: float = -math.inf
    rests_until_s: float = -math.inf
    rests_for: Why = "backup"
    failures: int = 0


class IbMigrations:
    """Has connections migrate.

    Args:
        ports: that there are.
        traffic: queue pairs, and what they send.
        findings: what is wrong.
        note: is told what was done.
        steering: what operators want of queue pairs.
        settings: of the planner.

    Attributes:
        attempts: those under way.
        outcomes: of attempts (`OUTCOMES`).
        states: of connections (`STATES`), as of the last look.
    """

    def __init__(
        self,
        ports: Ports,
        traffic: Traffic,
        findings: Findings,
        note: Note,
        *,
        steering: SteerTable,
        settings: PlannerSettings,
    ) -> None:
        self.attempts = Attempts(traffic.verbs.clocks)
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.states: Counter[str] = Counter(dict.fromkeys(STATES, 0))
        self._ports, self._verbs, self._findings = ports, traffic.verbs, findings
        self._steering, self._settings, self._note = steering, settings, note
        self._connections, self._room = Connections(), Room(traffic.queue_pairs)
        self._memory: defaultdict[Key, _Memory] = defaultdict(_Memory)
        self._moves = Budget(settings.moves_per_s, settings.moves_per_host_s)
        self._loads = Budget(LOADS_PER_S, LOADS_PER_HOST_S)
        self._rests_on: tuple[object, ...] = ()
        self._looked_s = self._told_s = -math.inf
        self._since_s = 0.0
        self._round: _Round | None = None
        self._over: list[tuple[Attempt, str]] = []

    def lead(self, now_s: float, epoch: int) -> None:
        """This manager decides from now on: not before all orders of another one are over."""
        self.stand_by()
        self.attempts.epoch, self._since_s = epoch, now_s + ORDER_S + ANSWER_S

    def stand_by(self) -> None:
        """Another one does."""
        self.attempts.forget()
        self._memory.clear()
        self._round = None

    def hears(self) -> list[tuple[str, type[Any], Callable[[Any, float], None]]]:
        """Kinds of messages, and what takes them in."""
        return [("migrated", MigrationReport, self.hear)]

    def hear(self, report: MigrationReport, now_s: float) -> None:
        """A host says what came of orders."""
        for attempt in self.attempts.hear(report.host, report.answers, now_s):
            self._end(attempt, now_s)

    def step(self, now_s: float) -> None:
        """Have connections migrate that should; to be called often."""
        if now_s < self._since_s:
            return
        for attempt in self.attempts.tidy(now_s):
            self._end(attempt, now_s)
        rests_on = (
            [(one.number, one.kind) for one in self._findings.of(*NAMED)],
            self._ports.version,
            self._steering.revision,
        )
        if rests_on != self._rests_on:
            self._rests_on = rests_on
            self._begin_round(now_s)
            self._look(now_s)
        elif self._round is None and now_s - self._looked_s >= LOOK_S:
            self._begin_round(now_s)
        self._look(now_s, LOOKED_AT_ONCE)
        if self._over and now_s - self._told_s >= TOLD_S:
            self._told_s = now_s
            self._tell()

    def why_not(self, name: Name, dlid: int) -> str | None:
        """Why a queue pair cannot take the path to a LID; None where it can, as far as is known."""
        self._connections.see(self._ports, self._verbs)
        end = self._connections.of(name)
        if end is None:
            return "no program tells of its other end that it can migrate, and both ends must"
        number, lids = end.number_of(dlid), end.there.end.lids
        if number is None:
            return f"its paths lead to the LIDs {lids.lid} to {lids.lid + end.path_count - 1}"
        other = self._connections.other(end)
        wanted = self._steering.of(other.name)
        if wanted is not None and other.number_of(wanted.sport) != number:
            return f"its other end, at {other.host}, is steered to another path"
        return None

    def _begin_round(self, now_s: float) -> None:
        self._looked_s = now_s
        self._ports.look(now_s)
        connections = self._connections
        connections.see(self._ports, self._verbs)
        for key in self._memory.keys() - connections.all.keys():
            del self._memory[key]
        look = Look(connections, self._ports.paths, self._findings.of(*NAMED), self._room, now_s)
        able = {port.host for port in self._ports.by_addr.values() if port.is_up} & self._verbs.clocks.keys()
        self._round = _Round(look, able, self._wanted(look), iter(list(connections.all)))

    def _look(self, now_s: float, most: int | None = None) -> None:
        """Go on with the round, with so many connections, or to its end."""
        round_ = self._round
        if round_ is None:
            return
        keys = list(islice(round_.left, most))
        wishes = sorted(self._wishes(round_, keys, now_s), key=lambda wish: _ORDER.index(wish.why))
        for budget in (self._moves, self._loads):
            budget.refill(now_s)
        for wish in wishes:
            if self._may(wish, now_s):
                self._begin(wish, now_s)
        if most is None or len(keys) < most:
            self.states, self._round = round_.look.states, None
        self.attempts.flush(now_s)

    def _wishes(self, round_: _Round, keys: Iterable[Key], now_s: float) -> Iterator[Wish]:
        for key in keys:
            connection = self._connections.all.get(key)
            if connection is None or key in self.attempts:
                continue
            if not round_.able.issuperset(end.host for end in connection.ends):
                round_.look.states["no_orders"] += 1
                continue
            memory = self._memory[key]
            is_known = now_s < memory.known_until_s
            told = (memory.number, memory.loaded) if is_known else (connection.number, connection.loaded)
            wish = round_.look.wish(key, At(*told, memory.loaded), round_.wanted.get(key))
            if wish is not None and self._is_granted(wish) and not _rests(memory, wish, now_s):
                yield wish

    def _is_granted(self, wish: Wish) -> bool:
        return self._settings.enabled or wish.why in ("operator", "follow")

    def _wanted(self, look: Look) -> Mapping[Key, int]:
        """The paths that operators want of connections, by number."""
        found: dict[Key, int] = {}
        for override in self._steering.all():
            end = self._connections.of(override.key) if override.is_by_lid else None
            number = None if end is None else end.number_of(override.sport)
            look.states["lids_changed"] += end is not None and number is None
            if end is not None and number is not None:
                found.setdefault(end.key, number)
        return found

    def _may(self, wish: Wish, now_s: float) -> bool:
        """Whether there is room for an attempt now; faults and operators wait for no budget."""
        if len(self.attempts) >= MOST_AT_ONCE or not self._room.is_calm(wish.links, now_s):
            return False
        budget = {"room": self._moves, "backup": self._loads}.get(wish.why)
        if budget is None:
            return True
        hosts = [end.host for end in self._connections.all[wish.key].ends]
        if budget.left() < 1 or any(budget.left_of(host) < 1 for host in hosts):
            return False
        budget.spend(Counter(hosts))
        return True

    def _begin(self, wish: Wish, now_s: float) -> None:
        deadline_ns = round((now_s + ORDER_S + ANSWER_S) * _NS_PER_S)
        steps = Migration(
            deadline_ns,
            is_loaded=wish.is_loaded,
            only_loads=wish.why == "backup",
            follower=wish.follower,
        )
        connection = self._connections.all[wish.key]
        self.attempts.begin(Attempt(wish.key, connection, wish.to, wish.why, steps, now_s))
        if wish.why == "room":
            self._room.moved(wish.key, wish.links, now_s)

    def _end(self, attempt: Attempt, now_s: float) -> None:
        """Remember what has come of an attempt."""
        memory, error = self._memory[attempt.key], attempt.steps.error
        if not error:
            outcome: str = "loaded" if attempt.why == "backup" else attempt.why
            if attempt.why == "backup":
                memory.number, memory.loaded = self._number(attempt, now_s), attempt.number
            else:
                memory.number, memory.loaded = attempt.number, None
            memory.known_until_s, memory.failures = now_s + KNOWN_S, 0
        else:
            waited_for = attempt.steps.not_yet if error == errno.ETIMEDOUT else 0
            outcome = _REASONS.get(waited_for or error, "device")
            memory.loaded = None if error == errno.EINVAL else attempt.number
            memory.rests_for = attempt.why
            memory.rests_until_s = now_s + min(RESTS_S * 2**memory.failures, RESTS_MOST_S)
            memory.known_until_s, memory.failures = -math.inf, memory.failures + 1
        self.outcomes[outcome] += 1
        if attempt.why != "backup" or (error and memory.failures == 1):
            self._over.append((attempt, outcome))

    def _number(self, attempt: Attempt, now_s: float) -> int | None:
        """Of the path that a connection takes that has loaded another one."""
        memory = self._memory[attempt.key]
        return memory.number if now_s < memory.known_until_s else attempt.connection.number

    def _tell(self) -> None:
        """One event for what was done for each reason, and one for what was not."""
        over, self._over = self._over, []
        for why in _ORDER:
            done = [each for each, outcome in over if outcome == why]
            if done:
                self._note_all("migrated", [(each, _SHOWN[why]) for each in done], _SHOWN[why])
        failed = [(each, outcome.replace("_", " ")) for each, outcome in over if outcome not in _ORDER]
        if failed:
            counts = Counter(reason for _, reason in failed)
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
            self._note_all("not_migrated", failed, reasons)

    def _note_all(self, what: str, attempts: Sequence[tuple[Attempt, str]], why: str) -> None:
        hosts = sorted({end.host for each, _ in attempts for end in each.connection.ends})
        rest = len(hosts) - _NAMED_HOSTS
        some = ", ".join(hosts[:_NAMED_HOSTS]) + (f" and {rest} more" if rest > 0 else "")
        count = f"{len(attempts)} connection{'s' * (len(attempts) != 1)}"
        listed = [_move(each, what, reason) for each, reason in attempts[:MOST_LISTED]]
        moves = Moves(count=len(attempts), listed=listed)
        self._note("fleet", f"qp_{what}", f"{count} of {some}: {why}", moves=moves)


def _move(attempt: Attempt, what: str, why: str) -> Move:
    """What an event lists of one, by the end that comes first."""
    end = attempt.connection.ends[0]
    host, nic, dst_addr, qpn = end.name
    return Move(
        host=host,
        nic=nic,
        dst_addr=dst_addr,
        qpn=qpn,
        what=what,
        sport=end.there.end.lids.lid + attempt.number,
        backup_sport=None,
        before_sport=end.qp.sport,
        why=why,
    )


def _rests(memory: _Memory, wish: Wish, now_s: float) -> bool:
    return now_s < memory.rests_until_s and wish.why == memory.rests_for
