"""Rings with names: what is measured of each link, or pair of leaves, gathered into buckets. One thread uses it.

What is measured goes into the bucket of the finest level, which is written anew each time, and taken up after a
restart. A coarser bucket is made from the finer ones on disk when it is over. A name has a slot for as long as it is
seen, and for a fortnight after.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

import numpy as np
from numpy.typing import NDArray

from manager.history.coding import Field, Floats, merged, pack, unpack
from manager.history.rings import LEVELS, Ring, segment_bytes, segment_slots
from manager.history.store import Store

VANISHED_S = 14 * 86_400.0
SEEN_EVERY_S = 3_600.0
"""How often it is noted on disk which names are there."""

Name = tuple[str, str]
Slots = NDArray[np.intp]


@dataclass(kw_only=True)
class _Slot:
    slot: int
    since_s: float
    seen_s: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured at some instant, or over some span.

    Attributes:
        time_s: when it began.
        lasts_s: how long it was.
        names: of what.
        values: by the fields' names, NaN for unknown; shape (names,).
    """

    time_s: float
    lasts_s: float
    names: list[Name]
    values: dict[str, Floats]


class Measured:
    """The buckets of everything of one kind.

    Args:
        ring: where they are.
        name: of the kind, under which the store keeps who has which slot.
        fields: of each cell.
        store: the directory of names.

    Attributes:
        no_room: names that have no slot, as there may be no more files.
    """

    def __init__(self, ring: Ring, name: str, fields: Sequence[Field], store: Store) -> None:
        self.ring, self.no_room = ring, 0
        self._name, self._fields, self._store = name, fields, store
        self._slots: dict[Name, _Slot] = {}
        for slot, a, b, since_s, seen_s in store.run(
            lambda db: db.execute(
                "SELECT slot, a, b, since_s, seen_s FROM slots WHERE ring = ?", (name,)
            ).fetchall()
        ):
            self._slots[a, b] = _Slot(slot=slot, since_s=since_s, seen_s=seen_s)
        self._noted_s = self._measured_s = 0.0
        self._names: Sequence[Name] = ()
        self._places: Slots = np.zeros(0, np.intp)
        self._number = -1
        self._sums: list[dict[str, Floats]] = []
        self._rolled = [-1] * len(LEVELS)

    @property
    def names(self) -> int:
        """How many names have a slot."""
        return len(self._slots)

    def add(
        self, names: Sequence[Name], values: Mapping[str, Floats], time_s: float, most_bytes: int
    ) -> None:
        """Take in what was just measured.

        Args:
            names: of what; the same object as before where they are the same.
            values: by the fields' names, NaN for unknown; shape (names,).
            time_s: seconds since 1970.
            most_bytes: that the files of this kind may have in all.
        """
        number = LEVELS[0].number(time_s)
        if number != self._number:
            self._number = number
            before = self.ring.read(0, number)
            self._sums = [unpack(self._fields, before)] if before.any() else []
            self.roll(time_s)
            self._note_seen()
        if names is not self._names and names != self._names:
            self._places = self._find(names, time_s, most_bytes)
            self._names = names
        self._measured_s = time_s
        there = self._places >= 0
        places, size = self._places[there], self._used()
        spread = {}
        for field in self._fields:
            spread[field.name] = np.full(size, np.nan)
            spread[field.name][places] = values[field.name][there]
        self._sums.append(spread)
        if size:
            together = {
                field.name: np.stack([_sized(each[field.name], size) for each in self._sums])
                for field in self._fields
            }
            self.ring.write(0, number, pack(self._fields, merged(self._fields, together)))

    def roll(self, time_s: float) -> None:
        """Make the coarser buckets that are over, from the finer ones that are still there."""
        for level in range(1, len(LEVELS)):
            fine, coarse = LEVELS[level - 1], LEVELS[level]
            now = coarse.number(time_s)
            if now - 1 <= self._rolled[level]:
                continue
            first = max(self._rolled[level] + 1, now - fine.bucket_s * fine.count // coarse.bucket_s + 1)
            there = set(self.ring.numbers(level)) if self._rolled[level] < 0 else set()
            for number in range(first, now):
                if number not in there:
                    self._make(level, number)
            self._rolled[level] = now - 1
            self.ring.sync()

    def at(self, time_s: float) -> Measurement | None:
        """What was measured then, in as much detail as there is; None for nothing."""
        for i, level in enumerate(LEVELS):
            number = level.number(time_s)
            cells = self.ring.read(i, number)
            if cells.any():
                start_s = float(number * level.bucket_s)
                named = [
                    (name, slot.slot)
                    for name, slot in self._slots.items()
                    if slot.slot < len(cells) and cells[slot.slot] and slot.since_s < start_s + level.bucket_s
                ]
                places = np.array([slot for _, slot in named], np.intp)
                values = unpack(self._fields, cells[places])
                names = [name for name, _ in named]
                return Measurement(time_s=start_s, lasts_s=float(level.bucket_s), names=names, values=values)
        return None

    def series(
        self, name: Name, since_s: float, until_s: float
    ) -> tuple[Floats, int, dict[str, Floats]] | None:
        """What was measured of one name, in the finest level that goes back so far; None where it has no slot.

        Returns:
            The buckets' starts, seconds since 1970, shape (buckets,); their length in seconds; values of that shape.
        """
        slot = self._slots.get(name)
        if slot is None:
            return None
        newest = max(self.ring.numbers(0), default=0) * LEVELS[0].bucket_s
        i = next(
            (i for i, each in enumerate(LEVELS) if newest - since_s < each.count * each.bucket_s),
            len(LEVELS) - 1,
        )
        level = LEVELS[i]
        first = max(level.number(max(since_s, slot.since_s)), level.number(newest) - level.count + 1)
        numbers = range(first, max(first, level.number(until_s) + 1))
        numbers = numbers[: level.count]
        cells = self.ring.read_slot(slot.slot, i, numbers)
        starts = np.arange(len(numbers), dtype=np.float64) * level.bucket_s + first * level.bucket_s
        return starts, level.bucket_s, unpack(self._fields, cells)

    def span_s(self) -> tuple[float, float] | None:
        """From when until when anything was measured, seconds since 1970; None for nothing."""
        spans = []
        for i, level in enumerate(LEVELS):
            numbers = self.ring.numbers(i)
            if numbers:
                spans.append((numbers[0] * level.bucket_s, (numbers[-1] + 1) * level.bucket_s))
        return (float(min(a for a, _ in spans)), float(max(b for _, b in spans))) if spans else None

    def _used(self) -> int:
        return max((slot.slot for slot in self._slots.values()), default=-1) + 1

    def _make(self, level: int, number: int) -> None:
        fine, coarse = LEVELS[level - 1], LEVELS[level]
        first, count = number * coarse.bucket_s // fine.bucket_s, coarse.bucket_s // fine.bucket_s
        cells = np.stack([self.ring.read(level - 1, first + i) for i in range(count)])
        if cells.any():
            values = merged(self._fields, unpack(self._fields, cells))
            self.ring.write(level, number, pack(self._fields, values)[: self._used()])

    def _find(self, names: Sequence[Name], time_s: float, most_bytes: int) -> Slots:
        """The slot of each name, -1 for none; new ones get one where there is room."""
        new = [name for name in dict.fromkeys(names) if name not in self._slots]
        if new:
            self._assign(new, time_s, most_bytes)
        for name in names:
            if name in self._slots:
                self._slots[name].seen_s = time_s
        found = (self._slots.get(name) for name in names)
        return np.array([-1 if slot is None else slot.slot for slot in found], np.intp)

    def _assign(self, new: Sequence[Name], time_s: float, most_bytes: int) -> None:
        gone = {
            name for name, slot in self._slots.items() if time_s - slot.seen_s > VANISHED_S + SEEN_EVERY_S
        }
        taken = {slot.slot for name, slot in self._slots.items() if name not in gone}
        free = iter(sorted(set(range(len(taken) + len(new))) - taken))
        given: dict[Name, _Slot] = {}
        for name in new:
            slot = next(free)
            if slot >= self.ring.slots and not self._grow(slot, most_bytes):
                break
            given[name] = _Slot(slot=slot, since_s=time_s, seen_s=time_s)
        rows = [(self._name, each.slot, *name, time_s, time_s) for name, each in given.items()]
        dropped = [(self._name, self._slots[name].slot) for name in gone]

        def keep(db: Connection) -> None:
            db.executemany("DELETE FROM slots WHERE ring = ? AND slot = ?", dropped)
            db.executemany("INSERT INTO slots VALUES (?, ?, ?, ?, ?, ?)", rows)

        self._store.run(keep)
        for name in gone:
            del self._slots[name]
        self._slots |= given
        self.no_room = len(new) - len(given)

    def _grow(self, slot: int, most_bytes: int) -> bool:
        """Have another file, if there may be one."""
        number = self.ring.segments
        if self.ring.size_bytes + segment_bytes(segment_slots(number)) > most_bytes:
            return False
        self.ring.grow_to(slot + 1)
        return True

    def _note_seen(self) -> None:
        """Note on disk which names were there when something was last measured."""
        if self._measured_s - self._noted_s < SEEN_EVERY_S:
            return
        for name in self._names:
            if name in self._slots:
                self._slots[name].seen_s = self._measured_s
        rows = [(slot.seen_s, self._name, slot.slot) for slot in self._slots.values()]
        self._store.run(
            lambda db: db.executemany("UPDATE slots SET seen_s = ? WHERE ring = ? AND slot = ?", rows)
        )
        self._noted_s = self._measured_s


def _sized(values: Floats, size: int) -> Floats:
    """The first, or with NaN behind: slots may have been given away meanwhile."""
    return np.concatenate([values[:size], np.full(max(0, size - len(values)), np.nan)])
