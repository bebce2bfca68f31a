"""`same_in_group`: subjects of like hardware held against each other."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from manager.audit.checks.model import Check
from manager.audit.judging.alike import agreement, spread
from manager.audit.judging.fleet import Fleet, Rows
from manager.audit.judging.groups import Groups
from manager.audit.judging.ranges import ranges
from manager.audit.judging.tally import Tally
from manager.audit.judging.values import Garbled, Key, Known, shown

MOST_VALUES = 6
"""Of a divided group that are told, the most frequent."""


class Declared:
    """Subjects of whose fact a check declares the value: they are held against that, not against a majority."""

    def __init__(self, fleet: Fleet, checks: Sequence[Check]) -> None:
        self._fleet = fleet
        self._by_fact: defaultdict[str, list[Check]] = defaultdict(list)
        for check in checks:
            self._by_fact[check.fact].append(check)

    def without(self, check: Check, rows: Rows) -> tuple[Rows, list[bool]]:
        """The rows of a check, and of each whether another check declares its value."""
        declaring = self._by_fact.get(check.fact, [])
        declared = {id(subject) for each in declaring for subject in self._fleet.select(each).subjects}
        return rows, [id(subject) in declared for subject in rows.subjects] if declared else []


class _Column(Struct, frozen=True):
    """What is compared: the rows of a check, the value of each, its group, and whether its value is declared.

    `numbers` are None for rows that are compared with nobody; `declared` is empty where no value is.
    """

    check: Check
    rows: Rows
    values: list[Known]
    numbers: list[int | None]
    declared: list[bool]


def in_groups(
    check: Check, told: tuple[Rows, list[bool]], fleet: Fleet, groups: Groups, tally: Tally
) -> None:
    """Judge the rows of a check by their groups."""
    rows, declared = told
    values = fleet.column(check.fact, rows, check.kind)
    numbers: list[int | None] = groups.of(rows, check.kind)
    if declared:
        numbers = [None if is_declared else n for n, is_declared in zip(numbers, declared, strict=True)]
    column = _Column(check, rows, values, numbers, declared)
    _leave_out(column, tally)
    counts = Counter(zip(numbers, values, strict=True))
    by_group: defaultdict[int, dict[Key, int]] = defaultdict(dict)
    for (number, value), count in counts.items():
        if number is not None and value is not None and not isinstance(value, Garbled):
            by_group[number][value] = count
    _judge_groups(column, by_group, groups, tally)


def _leave_out(column: _Column, tally: Tally) -> None:
    """Rows that are compared with nobody: without a value, without a group, or with a value that is declared."""
    rows, values, numbers = column.rows, column.values, column.numbers
    garbled = {value for value in set(values) if isinstance(value, Garbled)}
    if None not in numbers and None not in values and not garbled:
        return
    if None not in numbers and not garbled:
        tally.absent(column.check.fact, rows, [row for row, value in enumerate(values) if value is None])
        return
    for row, (value, number) in enumerate(zip(values, numbers, strict=True)):
        if column.declared and column.declared[row]:
            tally.take(rows, row)
        elif value is None or isinstance(value, Garbled):
            tally.not_known(column.check.fact, rows, row, value)
        elif number is None:
            reason = "of which hardware it is, is not known"
            tally.add(rows, row, "unknown", found=shown(value), reason=reason)


def _judge_groups(
    column: _Column, by_group: Mapping[int, dict[Key, int]], groups: Groups, tally: Tally
) -> None:
    differing = {number for number, counts in by_group.items() if len(counts) > 1}
    if not differing:
        return
    members: defaultdict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(column.numbers):
        if number in differing and not isinstance(column.values[row], Garbled | None):
            members[number].append(row)
    for number in sorted(members):
        group = _Group(column, members[number], groups.labels[number], tally)
        if column.check.tolerance is None:
            group.by_majority(by_group[number])
        else:
            group.by_median(column.check.tolerance)


class _Group:
    """The rows of a group that do not all have the same value."""

    def __init__(self, column: _Column, members: list[int], label: str, tally: Tally) -> None:
        self.check, self.rows, self.values = column.check, column.rows, column.values
        self.members, self.tally = members, tally
        count = len({self.rows.owners[row] for row in members})
        self.label = f"{label}: {count} host{'' if count == 1 else 's'}"

    def by_majority(self, counts: Mapping[Key, int]) -> None:
        found = agreement(counts)
        if found.state == "divided":
            self._divided(counts)
            return
        said = f"{shown(found.value)}, as {found.count} of {found.members} have it"
        for row in self.members:
            if self.values[row] != found.value:
                self._outlier(row, said)

    def by_median(self, tolerance: float) -> None:
        told = [value for row in self.members if isinstance(value := self.values[row], int | float)]
        found = spread(told, tolerance, is_share=self.check.tolerance_is_share)
        if found.state == "divided":
            self._divided(Counter(told))
        for row, is_apart in zip(self.members, found.apart, strict=True):
            if is_apart and found.state == "majority":
                said = f"{shown(found.median)} (median of {len(told)}), give or take {shown(found.bound)}"
                self._outlier(row, said)

    def _outlier(self, row: int, said: str) -> None:
        value = self.values[row]
        self.tally.add(self.rows, row, "outlier", found=shown(value), expected=said, group=self.label)

    def _divided(self, counts: Mapping[Key, int]) -> None:
        """One finding for all, who count as neither passed nor wrong."""
        owners: defaultdict[Known, set[int]] = defaultdict(set)
        for row in self.members:
            owners[self.values[row]].add(self.rows.owners[row])
            self.tally.take(self.rows, row)
        common = sorted(counts, key=lambda value: (-counts[value], shown(value)))
        said = [
            f"{shown(value)} on {counts[value]} ({self._hosts(owners[value])})"
            for value in common[:MOST_VALUES]
        ]
        if len(common) > MOST_VALUES:
            said.append(f"{len(common) - MOST_VALUES} more values")
        everyone = set().union(*owners.values())
        self.tally.owners_with_results |= everyone
        self.tally.add_result(
            self._hosts(everyone),
            "",
            "divided",
            found="; ".join(said),
            expected="the same on all of the group",
            group=self.label,
        )

    def _hosts(self, owners: set[int]) -> str:
        return ranges(self.tally.host_name(owner) for owner in owners)
