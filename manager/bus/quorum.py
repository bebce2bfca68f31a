"""The rule by which one of several managers leads: whoever holds most of some registers. No I/O, and no clock of its own.

A register holds one record, which is replaced by compare-and-set only, and lies on a server of its own: whichever one
server fails, stands still or comes back, the others go on. A leader replaces its records again and again. Others look at
them; who has seen most of them stand still for `LEASE_S` may take those, each by compare-and-set. Each register is
counted by itself: one that its holder has last renewed by a message sent at some moment is taken by nobody before
`LEASE_S` after that moment, as whoever takes it begins to count when it sees that renewal, which is later. So a leader
leads until `LEASE_S` after the moment that counts for a majority (that of the renewal, sent and stored, that is the
newest but one of three), less a margin, and any two majorities have a register in common, so two never lead at once.
Everybody counts by a clock of its own, and none needs to be right.

**Empty registers.** A register of which the server has lost its disk is empty. What its holder has last renewed there was
sent before it was lost, so it is left alone for `LEASE_S` from when it was seen empty, too; so is one that holds again what it
held before, as its machine lost power. Only where all are empty, as at the first start, are they taken at once: three
servers that have all lost their disks take longer than the lease to keep streams again, and of a single one that did not,
the epoch still tells who leads.

**Epochs.** A claim bears an epoch above all that are found in the registers. It is by compare-and-set on what was found, in a
majority, so it sees the claims of all who led before; and it is no lower than the time, in milliseconds since 1970, so that it is above
those that were lost with a disk.

**Tries** go from one register to the next, in the same order for everybody, and end at the first that somebody else has
replaced meanwhile: of two managers that try at the same time one goes on. Who gives up empties what it took, and waits
for a random time.

(Gray and Cheriton, Leases, SOSP 1989; Gifford, Weighted voting for replicated data, SOSP 1979; Gafni and Lamport, Disk Paxos,
2003; Burrows, The Chubby lock service, OSDI 2006.)
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

LEASE_S = 3.5
MARGIN_S = 0.5
BEAT_S = 0.25

FRESH_S = 1.0
"""A register that has not answered for so long is out of reach."""

TURN_S = 0.2
"""So long a try waits for one register before it goes on with the next as well."""

REST_LEAST_S, REST_MOST_S = 0.05, 0.4
"""Between two tries; the most doubles with each that is given up, three times at most."""

COUNTERS = ("taken", "renewed", "lost", "given_up", "failed")


class Record(Struct, frozen=True, kw_only=True):
    """What a register holds.

    Attributes:
        manager: whose it is, empty for nobody's; `name` is for people.
        epoch: by which it was claimed.
        number: that of this record among all that the manager has written: no two are alike, on whatever disk.
    """

    manager: str
    name: str
    epoch: int = 0
    number: int = 0


@dataclass(frozen=True)
class Ask:
    """What is asked of a register: to store `record` in place of what it held at `revision`; what it holds, where that is None."""

    register: int
    sent_s: float
    revision: int = 0
    record: Record | None = None


@dataclass
class _Register:
    """What is known of one.

    Attributes:
        revision: of what it holds; 0 for a register that never held anything, -1 while that is not known.
        seen_s: when it was last seen to be another one than before; -inf once it could be taken as it is.
        answered_s: when it last answered.
        renewed_s: when the record was sent by which it is held; -inf where it is not.
        due_s: when to ask it next.
        asked: what has not been answered yet.
        is_stale: whether it holds something else than what is known.
        is_given_up: whether to empty it.
    """

    revision: int = -1
    record: Record | None = None
    seen_s: float = -math.inf
    answered_s: float = -math.inf
    renewed_s: float = -math.inf
    due_s: float = -math.inf
    asked: Ask | None = None
    is_stale: bool = False
    is_given_up: bool = False


@dataclass
class _Try:
    """A try for the lead.

    Attributes:
        order: the registers to take, those that can be.
        turn, turn_s: which of `order` is next, and since when.
        before: what those held that were asked for.
        taken: those that are.
    """

    epoch: int
    order: list[int]
    turn_s: float
    turn: int = 0
    before: dict[int, Record | None] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)


class Quorum:
    """One manager's part; whoever uses it asks registers what is `due`, each with a time limit, and tells what became of it.

    Times are of a clock that goes on while the machine sleeps, in seconds.

    Args:
        manager: tells it from all others; `name` is for people.
        registers: how many there are.
        draw: for how long to wait between tries.

    Attributes:
        epoch: the number of this manager's latest time as the leader; 0 before the first.
        others_led: whether others may have led before that, since this manager did.
        leading: whether it leads, if the time is not up.
        until_s: when it is.
        why: why it leads no more.
        gone: a manager that surely runs no more; None for nobody.
        counters: totals by name (`COUNTERS`).
    """

    def __init__(self, manager: str, name: str, registers: int, draw: random.Random) -> None:
        self.manager, self.name = manager, name
        self.epoch, self.others_led = 0, True
        self.leading, self.until_s, self.why = False, -math.inf, ""
        self.gone: str | None = None
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._registers = [_Register() for _ in range(registers)]
        self._majority = registers // 2 + 1
        self._draw = draw
        self._try: _Try | None = None
        self._given_up, self._rest_s = 0, -math.inf
        self._written = 0
        self._ended = False

    @property
    def registers(self) -> int:
        """How many there are."""
        return len(self._registers)

    @property
    def renewed_s(self) -> float:
        """Since when a majority has been held without anybody else in between, at the least: when its last renewals were sent."""
        return sorted((each.renewed_s for each in self._registers), reverse=True)[self._majority - 1]

    @property
    def holder(self) -> Record | None:
        """A record of who holds a majority, as last seen; None for nobody, or while that is not known."""
        records = [each.record for each in self._registers if each.record is not None and each.record.manager]
        for record in records:
            if sum(each.manager == record.manager for each in records) >= self._majority:
                return record
        return None

    def leads(self, now_s: float) -> bool:
        """Whether this manager leads; may be asked in any thread."""
        return self.leading and now_s < self.until_s

    def due(self, now_s: float, unix_s: float) -> list[Ask]:
        """What to ask now, of registers that owe no answer; `unix_s` is since 1970."""
        self.lapse(now_s)
        if self._ended:
            return []
        if not self.leading and self._try is None and now_s >= self._rest_s and self._may_try(now_s):
            self._begin(now_s, unix_s)
        self._pass_turn(now_s)
        asks = []
        for number, register in enumerate(self._registers):
            if register.asked is None and now_s >= register.due_s:
                record = None if register.is_stale else self._record_for(number, now_s)
                if self._try is not None and record is not None:
                    self._try.before[number] = register.record
                register.asked = Ask(number, now_s, register.revision, record)
                register.due_s = now_s + BEAT_S
                asks.append(register.asked)
        return asks

    def pause_s(self, now_s: float) -> float:
        """How long nothing is due, nor changes by itself; at most a beat."""
        times = [each.due_s for each in self._registers if each.asked is None]
        if self.leading:
            times.append(self.until_s)
        elif self._try is not None:
            times.append(self._try.turn_s + TURN_S)
        else:
            free = sorted(self._free_s(each) for each in self._registers)[self._majority - 1]
            times.append(max(free, self._rest_s))
        return min((time_s - now_s for time_s in times if now_s < time_s < now_s + BEAT_S), default=BEAT_S)

    def found(self, ask: Ask, revision: int, record: Record | None, now_s: float) -> None:
        """A register holds this; None for what nobody can read."""
        register = self._answered(ask, now_s)
        is_new = (revision, record) != (register.revision, register.record)
        register.revision, register.record, register.is_stale = revision, record, False
        if is_new:
            register.seen_s = now_s
        is_own = record is not None and record.manager == self.manager
        if self._try is not None and is_new and ask.register in self._try.order:
            self._give_up(now_s)
        if is_own and self.leading:
            register.due_s = now_s
        elif not is_own:
            register.renewed_s, register.is_given_up = -math.inf, False
            self._count(now_s)

    def stored(self, ask: Ask, revision: int, now_s: float) -> None:
        """A register has taken a record."""
        assert ask.record is not None
        register, record = self._answered(ask, now_s), ask.record
        register.revision, register.record, register.seen_s = revision, record, now_s
        if not record.manager:
            register.is_given_up = False
        elif self._try is not None and record.epoch == self._try.epoch:
            register.renewed_s = ask.sent_s
            self._try.taken.add(ask.register)
            if len(self._try.taken) >= self._majority:
                self._win(self._try, now_s)
        elif self.leading and record.epoch == self.epoch:
            register.renewed_s = ask.sent_s
            self._count(now_s)
        elif record.epoch != self.epoch:
            register.is_given_up, register.due_s = True, now_s

    def refused(self, ask: Ask, now_s: float) -> None:
        """A register has not taken a record: it holds something else than was known."""
        register = self._answered(ask, now_s)
        register.is_stale, register.due_s = True, now_s
        if self._try is not None and ask.register in self._try.order:
            self._give_up(now_s)

    def failed(self, ask: Ask, now_s: float) -> None:
        """A register has not answered, and may have taken the record or not."""
        register = self._registers[ask.register]
        register.asked = None
        register.due_s = max(register.due_s, ask.sent_s + BEAT_S)
        self.counters["failed"] += 1
        self._pass_turn(now_s)

    def lapse(self, now_s: float) -> None:
        """Note that the time is up, if it is."""
        if self.leading and now_s >= self.until_s:
            self._step_down("it could not be renewed in time")

    def hurry(self, now_s: float) -> None:
        """Renew at once whatever was last renewed before now."""
        for register in self._registers:
            register.due_s = min(register.due_s, now_s)

    def end(self) -> list[int]:
        """Lead no more and never again; the registers that may be this manager's, to be emptied by `nobody`."""
        self.leading, self._try, self._ended = False, None, True
        own = [each.record is not None and each.record.manager == self.manager for each in self._registers]
        return [number for number, is_own in enumerate(own) if is_own or self._registers[number].asked]

    def nobody(self, record: Record) -> Record:
        """What to empty a register with that holds this: its epoch stays known."""
        self._written += 1
        return Record(manager="", name=self.manager, epoch=record.epoch, number=self._written)

    def _answered(self, ask: Ask, now_s: float) -> _Register:
        register = self._registers[ask.register]
        register.asked, register.answered_s = None, now_s
        return register

    def _free_s(self, register: _Register) -> float:
        """From when on a register may be taken, as far as is known."""
        if register.revision < 0:
            return math.inf
        if register.record is None:
            is_first = register.revision > 0 or all(each.revision == 0 for each in self._registers)
            return -math.inf if is_first else register.seen_s + LEASE_S
        if register.record.manager in ("", self.manager, self.gone):
            return -math.inf
        return register.seen_s + LEASE_S

    def _may_take(self, register: _Register, now_s: float) -> bool:
        return not register.is_stale and now_s >= self._free_s(register)

    def _can_take(self, now_s: float) -> list[int]:
        return [
            number
            for number, register in enumerate(self._registers)
            if self._may_take(register, now_s) and now_s <= register.answered_s + FRESH_S
        ]

    def _may_try(self, now_s: float) -> bool:
        return len(self._can_take(now_s)) >= self._majority

    def _begin(self, now_s: float, unix_s: float) -> None:
        known = [each.record.epoch for each in self._registers if each.record is not None]
        epoch = max(int(unix_s * 1e3), self.epoch + 1, *(each + 1 for each in known))
        self._try = _Try(epoch, self._can_take(now_s), now_s)
        for number in self._try.order:
            register = self._registers[number]
            register.is_given_up, register.seen_s = False, -math.inf
        self._call(self._try)

    def _call(self, attempt: _Try) -> None:
        """Ask at once for the register whose turn it is."""
        if attempt.turn < len(attempt.order):
            register = self._registers[attempt.order[attempt.turn]]
            register.due_s = min(register.due_s, attempt.turn_s)

    def _pass_turn(self, now_s: float) -> None:
        """Go on with the next register once one has been taken, or answers too late or not at all."""
        while (attempt := self._try) is not None:
            if attempt.turn == len(attempt.order):
                if not any(self._registers[number].asked for number in attempt.order):
                    self._give_up(now_s)
                return
            number = attempt.order[attempt.turn]
            is_asked = number in attempt.before
            is_over = number in attempt.taken or (is_asked and self._registers[number].asked is None)
            if not is_over and now_s < attempt.turn_s + TURN_S:
                return
            attempt.turn += 1
            attempt.turn_s = now_s
            self._call(attempt)

    def _record_for(self, number: int, now_s: float) -> Record | None:
        """What to store in a register now; None to look at it."""
        register, attempt = self._registers[number], self._try
        if register.is_given_up and register.record is not None:
            return self.nobody(register.record)
        if attempt is not None:
            is_called = attempt.order[attempt.turn : attempt.turn + 1] == [number]
            return self._own(attempt.epoch) if is_called else None
        if self.leading and (register.renewed_s > -math.inf or self._may_take(register, now_s)):
            return self._own(self.epoch)
        return None

    def _own(self, epoch: int) -> Record:
        self._written += 1
        return Record(manager=self.manager, name=self.name, epoch=epoch, number=self._written)

    def _win(self, attempt: _Try, now_s: float) -> None:
        until_s = self.renewed_s + LEASE_S - MARGIN_S
        if now_s >= until_s:
            self._give_up(now_s)
            return
        before = [attempt.before[number] for number in attempt.taken]
        newest = max((each for each in before if each is not None), key=lambda each: each.epoch, default=None)
        is_own = newest is not None and (newest.manager, newest.epoch) == (self.manager, self.epoch)
        self.others_led = not is_own or None in before
        self._try, self._given_up = None, 0
        self.epoch, self.until_s = attempt.epoch, until_s
        self.leading = True
        self.counters["taken"] += 1
        for register in self._registers:
            register.due_s = min(register.due_s, now_s + BEAT_S)

    def _count(self, now_s: float) -> None:
        """Until when this manager leads, by what it holds."""
        if not self.leading:
            return
        until_s = self.renewed_s + LEASE_S - MARGIN_S
        if until_s == -math.inf:
            holder = self.holder
            self._step_down(
                f"{holder.name} has taken it" if holder else "others have taken it, or it was emptied"
            )
        elif until_s != self.until_s:
            self.counters["renewed"] += until_s > self.until_s
            self.until_s = until_s
            self.lapse(now_s)

    def _step_down(self, why: str) -> None:
        self.leading, self.why = False, why
        self.counters["lost"] += 1
        for register in self._registers:
            register.renewed_s = -math.inf

    def _give_up(self, now_s: float) -> None:
        attempt = self._try
        assert attempt is not None
        self._try = None
        for number in attempt.taken:
            register = self._registers[number]
            register.renewed_s, register.is_given_up, register.due_s = -math.inf, True, now_s
        self.counters["given_up"] += 1
        self._given_up += 1
        most_s = REST_MOST_S * 2 ** min(3, self._given_up - 1)
        self._rest_s = now_s + self._draw.uniform(REST_LEAST_S, most_s)
