"""The facts of many hosts by column: for a kind of subject, one list of a fact's values over all subjects of all hosts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.audit.facts import FACTS_VERSION, HostFacts, Subject, SubjectKind, Value
from manager.audit.checks.model import DERIVED, FACTS, Check
from manager.audit.judging.expectations import fits_condition
from manager.audit.judging.values import Garbled, Known, column, printable

KINDS: tuple[SubjectKind, ...] = ("host", "nic", "rdma", "gpu")
MOST_SUBJECTS = 2048
"""Of a host; no more are judged."""

LISTED_BY: Mapping[str, tuple[str, ...]] = {
    "host": (),
    "nic": ("nics", "links"),
    "rdma": ("rdma",),
    "gpu": ("gpus",),
}
"""Areas that tell which subjects of a kind a host has."""

_COUNTED_OF = {"nic.route_count": "routes", "nic.address_count": "addresses"}


class Rows:
    """Some subjects of a kind, and which host each is of.

    `unsure` are subjects of which it is not known whether they belong to these, with the reason.
    """

    def __init__(
        self, subjects: list[Subject], owners: list[int], unsure: Sequence[tuple[Subject, int, str]] = ()
    ) -> None:
        self.subjects, self.owners, self.unsure = subjects, owners, unsure
        self.facts: list[dict[str, Value]] = [subject.facts for subject in subjects]
        self._group_ids: list[int | None] | None = None

    def __len__(self) -> int:
        return len(self.subjects)

    def counts(self, hosts: int) -> NDArray[np.intp]:
        """How many are of each host, int per host."""
        return np.bincount(np.array(self.owners, np.intp), minlength=hosts)

    def where(self, keep: Sequence[bool | None]) -> "Rows":
        """Those that are to be kept."""
        chosen = [row for row, is_kept in enumerate(keep) if is_kept]
        return Rows([self.subjects[row] for row in chosen], [self.owners[row] for row in chosen], self.unsure)

    def group_ids(self, assign: Callable[["Rows"], list[int | None]]) -> list[int | None]:
        """The group of each, found once."""
        if self._group_ids is None:
            self._group_ids = assign(self)
        return self._group_ids


class Fleet:
    """The facts of hosts, one of each name: the latest."""

    def __init__(self, facts: Iterable[HostFacts]) -> None:
        latest: dict[str, HostFacts] = {}
        for each in facts:
            if each.host not in latest or latest[each.host].taken_s <= each.taken_s:
                latest[each.host] = each
        self.hosts = [latest[name] for name in sorted(latest)]
        self.of_kind = {kind: Rows([], []) for kind in KINDS}
        self._selected: dict[object, Rows] = {}
        self._host_columns: dict[str, list[Known]] = {}
        for owner, host in enumerate(self.hosts):
            self._add(owner, host)
        self.troubled = [owner for owner, host in enumerate(self.hosts) if host.troubles]

    def _add(self, owner: int, host: HostFacts) -> None:
        told = host.subjects[:MOST_SUBJECTS]
        if not any(subject.kind == "host" for subject in told):
            told = [Subject(kind="host"), *told]
        is_first = True
        for subject in told:
            if subject.kind == "host":
                if not is_first:
                    continue
                is_first = False
            rows = self.of_kind[subject.kind]
            rows.subjects.append(subject)
            rows.owners.append(owner)
            rows.facts.append(subject.facts)

    def column(self, name: str, rows: Rows, kind: str) -> list[Known]:
        """A fact of each row; of its host, where the fact is a host's and the rows, of `kind`, are not."""
        own, _, short = name.partition(".")
        if own != kind:
            if name not in self._host_columns:
                self._host_columns[name] = self.column(name, self.of_kind["host"], "host")
            known = self._host_columns[name]
            return [known[owner] for owner in rows.owners]
        if name in DERIVED:
            return self._derived(name, rows)
        return column(name, [facts.get(short) for facts in rows.facts])

    def _derived(self, name: str, rows: Rows) -> list[Known]:
        base = _COUNTED_OF.get(name)
        if base is not None:
            told = [facts.get(base) for facts in rows.facts]
            return [len(each) if isinstance(each, list | tuple) else None for each in told]
        kind, role = _COUNTS[name]
        of_kind = self.of_kind[kind]
        owners = [
            owner
            for owner, subject in zip(of_kind.owners, of_kind.subjects, strict=True)
            if not role or subject.role == role
        ]
        counts = np.bincount(np.array(owners, np.intp), minlength=len(self.hosts)).tolist()
        areas = (FACTS[name].area, *LISTED_BY[kind])
        return [
            None if any(area in self.hosts[owner].troubles for area in areas) else counts[owner]
            for owner in rows.owners
        ]

    def reason(self, name: str, subject: Subject, owner: int) -> tuple[str, bool] | None:
        """Why a fact of a subject is not known, and whether all of its host lack it; None where it does not apply."""
        own, _, short = name.partition(".")
        host = self.hosts[owner]
        if own != subject.kind:
            subject = self.of_kind["host"].subjects[owner]
        missing = subject.missing.get(_COUNTED_OF.get(name, short))
        if missing is not None:
            return printable(missing) or "no reason given", own == "host"
        trouble = self.trouble(name, host, has_subjects=name not in _COUNTS)
        if trouble:
            return trouble, True
        if FACTS[name].since > host.version:
            return f"an agent of version {host.version} (now {FACTS_VERSION}) does not tell it", True
        return None

    @staticmethod
    def trouble(name: str, host: HostFacts, *, has_subjects: bool) -> str:
        """What could not be read at all and concerns a fact, and why; "" where nothing of the kind is known."""
        kind = _COUNTS[name][0] if name in _COUNTS else name.partition(".")[0]
        areas = (FACTS[name].area, *(() if has_subjects else LISTED_BY[kind]))
        return next(
            (f"{area}: {printable(host.troubles[area])}" for area in areas if area in host.troubles), ""
        )

    def select(self, check: Check) -> Rows:
        """The subjects that a check is about; found once for all checks that are about the same."""
        key = (check.kind, check.role, check.hosts, check.subjects, check.when)
        if key not in self._selected:
            rows = self._named(check)
            for name, wanted in check.when:
                rows = self._under_condition(rows, check.kind, name, wanted)
            self._selected[key] = rows
        return self._selected[key]

    def fits(self, owner: int, check: Check) -> bool:
        """Whether a host is one of those that a check is about."""
        return _fits(self.hosts[owner].host, check.hosts)

    def _named(self, check: Check) -> Rows:
        rows = next(self.of_kind[kind] for kind in KINDS if kind == check.kind)
        if not (check.role or check.hosts or check.subjects):
            return rows
        fits = [_fits(host.host, check.hosts) for host in self.hosts]
        return rows.where(
            [
                fits[owner]
                and (not check.role or subject.role == check.role)
                and _fits(subject.name, check.subjects)
                for subject, owner in zip(rows.subjects, rows.owners, strict=True)
            ]
        )

    def _under_condition(self, rows: Rows, kind: str, name: str, wanted: Sequence[object]) -> Rows:
        values = self.column(name, rows, kind)
        judged: dict[Known, bool] = {
            value: fits_condition(value, wanted)  # type: ignore[arg-type]
            for value in set(values)
            if value is not None and not isinstance(value, Garbled)
        }
        unsure = list(rows.unsure)
        for row, value in enumerate(values):
            if value not in judged:
                reason = (
                    (value.why, False)
                    if isinstance(value, Garbled)
                    else self.reason(name, rows.subjects[row], rows.owners[row])
                )
                if reason is not None:
                    why = f"whether it applies is not known, for {name}: {reason[0]}"
                    unsure.append((rows.subjects[row], rows.owners[row], why))
        kept = rows.where([judged.get(value, False) for value in values])
        return Rows(kept.subjects, kept.owners, unsure)


_COUNTS: dict[str, tuple[SubjectKind, str]] = {
    "host.back_nics": ("nic", "back"),
    "host.front_nics": ("nic", "front"),
    "host.rdma_ports": ("rdma", ""),
    "host.gpus": ("gpu", ""),
}


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
