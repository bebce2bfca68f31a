"""The facts of many hosts by column: for a kind of subject, one list of a fact's values over all subjects of all hosts."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from cwdp.shared.audit.facts import HostFacts, Subject, SubjectKind
from manager.audit.checks.model import DERIVED, FACTS, Check
from manager.audit.judging.expectations import fits_condition
from manager.audit.judging.values import Garbled, Known, column, printable

KINDS: tuple[SubjectKind, ...] = ("host", "nic", "rdma", "gpu")
MOST_SUBJECTS = 2048
"""Of a host; no more are judged."""

AT_ONCE = 512
"""Subjects whose facts are put into columns at a time."""

LISTED_BY: Mapping[str, tuple[str, ...]] = {
    "host": (),
    "nic": ("nics", "links"),
    "rdma": ("rdma",),
    "gpu": ("gpus",),
}
"""Areas that tell which subjects of a kind a host has."""

EVERYWHERE = frozenset(
    {
        "host.kernel_release",
        "host.cpus",
        "host.memory_bytes",
        "nic.is_up",
        "nic.mtu_bytes",
        "rdma.state",
    }
)
"""Facts that apply to every subject of their kind: one that is not there, without a reason, is not known."""

NIC_DEVICES = "host.nic_devices"
_NIC_AREAS = ("pci", *LISTED_BY["nic"])
_COUNTED_OF = {"nic.route_count": "routes", "nic.address_count": "addresses"}


class Reason(Struct, frozen=True):
    """Why a fact is not known.

    Attributes:
        why: in words.
        is_own: whether it is said of this fact alone, so that others like it may lack it for the same reason.
        is_hosts: whether all of a host lack it.
    """

    why: str
    is_own: bool = False
    is_hosts: bool = False


class Unsure(Struct, frozen=True):
    """A subject of which it is not known whether a check is about it; `place` is among all of its kind."""

    place: int
    reason: Reason


class Rows:
    """Some subjects of a kind, and which host each is of.

    `unsure` are subjects of which it is not known whether they belong to these, with the reason. `places` are where these
    are among all of their kind; None for all.
    """

    def __init__(
        self,
        subjects: list[Subject],
        owners: list[int],
        unsure: Sequence[Unsure] = (),
        places: list[int] | None = None,
    ) -> None:
        self.subjects, self.owners, self.unsure, self.places = subjects, owners, unsure, places
        self._group_ids: list[int | None] | None = None
        self.plain: list[bool] | None = None

    def __len__(self) -> int:
        return len(self.subjects)

    def place(self, row: int) -> int:
        """Where one is among all of its kind."""
        return row if self.places is None else self.places[row]

    def all_places(self) -> list[int]:
        """Where these and those that are unsure are among all of their kind."""
        own = list(range(len(self))) if self.places is None else list(self.places)
        return own + [each.place for each in self.unsure]

    def counts(self, hosts: int) -> NDArray[np.intp]:
        """How many are of each host, int per host."""
        return np.bincount(np.array(self.owners, np.intp), minlength=hosts)

    def where(self, keep: Sequence[bool | None]) -> "Rows":
        """Those that are to be kept."""
        chosen = [row for row, is_kept in enumerate(keep) if is_kept]
        return Rows(
            [self.subjects[row] for row in chosen],
            [self.owners[row] for row in chosen],
            self.unsure,
            chosen if self.places is None else [self.places[row] for row in chosen],
        )

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
        self._told: dict[str, list[object]] = {}
        self._last: tuple[str, list[Known]] = ("", [])
        for owner, host in enumerate(self.hosts):
            self._add(owner, host)
        self._oldest = min((host.version for host in self.hosts), default=0)
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

    def column(self, name: str, rows: Rows, kind: str) -> list[Known]:
        """A fact of each row; of its host, where the fact is a host's and the rows, of `kind`, are not."""
        own = name.partition(".")[0]
        if own != kind:
            if name not in self._host_columns:
                self._host_columns[name] = self.column(name, self.of_kind["host"], "host")
            known = self._host_columns[name]
            return [known[owner] for owner in rows.owners]
        if name not in self._told:
            self._tell(own)
        if self._last[0] != name:
            told = self._derived(name) if name in DERIVED else column(name, self._told[name])
            self._last = (name, told)
        whole = self._last[1]
        return whole if rows.places is None else [whole[place] for place in rows.places]

    def _tell(self, kind: str) -> None:
        """Put all facts of a kind of subject into columns, some subjects at a time: a dictionary is in the cache only once."""
        names = [name for name in FACTS if name.startswith(f"{kind}.")]
        short = [name.partition(".")[2] for name in names]
        columns: list[list[object]] = [[] for _ in names]
        subjects = self.all_of(kind).subjects
        for start in range(0, len(subjects), AT_ONCE):
            block = [tuple(map(subject.facts.get, short)) for subject in subjects[start : start + AT_ONCE]]
            for values, told in zip(zip(*block, strict=True), columns, strict=True):
                told.extend(values)
        self._told.update(zip(names, columns, strict=True))

    def all_of(self, kind: str) -> Rows:
        """All subjects of a kind."""
        return next(rows for each, rows in self.of_kind.items() if each == kind)

    def _derived(self, name: str) -> list[Known]:
        base = _COUNTED_OF.get(name)
        if base is not None:
            told = self._told[f"{name.partition('.')[0]}.{base}"]
            return [len(each) if isinstance(each, list | tuple) else None for each in told]
        kind, role = _COUNTS[name]
        if name == NIC_DEVICES:
            return self._nic_devices()
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
            for owner in self.of_kind["host"].owners
        ]

    def _nic_devices(self) -> list[Known]:
        """How many NICs of each device each host has; None where that is not known of all its NICs."""
        counts: list[Counter[str] | None] = [Counter() for _ in self.hosts]
        nics = self.of_kind["nic"]
        for owner, subject in zip(nics.owners, nics.subjects, strict=True):
            mine, device = counts[owner], subject.facts.get("device")
            if "device" in subject.missing or any(area in self.hosts[owner].troubles for area in _NIC_AREAS):
                counts[owner] = None
            elif mine is not None and isinstance(device, str):
                mine[device] += 1
        told = (counts[owner] for owner in self.of_kind["host"].owners)
        return [
            None if each is None else tuple(sorted(f"{count} x {device}" for device, count in each.items()))
            for each in told
        ]

    def are_plain(self, name: str, rows: Rows) -> list[bool]:
        """Of which rows nothing is missing, so that a fact that is not there does not apply; none where that is not so simple."""
        if name in EVERYWHERE or FACTS[name].since > self._oldest:
            return []
        if rows.plain is None:
            troubled = set(self.troubled)
            rows.plain = [
                not subject.missing and owner not in troubled
                for subject, owner in zip(rows.subjects, rows.owners, strict=True)
            ]
        return rows.plain

    def reason(self, name: str, subject: Subject, owner: int) -> Reason | None:
        """Why a fact of a subject is not known; None where it does not apply."""
        host = self.hosts[owner]
        if (
            name not in EVERYWHERE
            and not (subject.missing or host.troubles)
            and name.startswith(subject.kind)
            and FACTS[name].since <= host.version
        ):
            return None
        own, _, short = name.partition(".")
        if own != subject.kind:
            subject = self.of_kind["host"].subjects[owner]
        missing = subject.missing.get(_COUNTED_OF.get(name, short))
        if missing is not None:
            return Reason(printable(missing) or "no reason given", is_own=True)
        trouble = self.trouble(name, host, has_subjects=name not in _COUNTS)
        if trouble:
            return Reason(trouble, is_hosts=True)
        if FACTS[name].since > host.version:
            told = f"facts of version {host.version} do not tell it, those of {FACTS[name].since} do"
            return Reason(told, is_hosts=True)
        return Reason("it is not told") if name in EVERYWHERE else None

    @staticmethod
    def trouble(name: str, host: HostFacts, *, has_subjects: bool) -> str:
        """What could not be read at all and concerns a fact, and why; "" where nothing of the kind is known."""
        kind = _COUNTS[name][0] if name in _COUNTS else name.partition(".")[0]
        areas = (FACTS[name].area, *(() if has_subjects else LISTED_BY[kind]))
        return next(
            (f"{area}: {printable(host.troubles[area])}" for area in areas if area in host.troubles), ""
        )

    def tells_nothing(self, owner: int) -> bool:
        """Whether a host tells no fact that there is."""
        return not any(
            f"{subject.kind}.{name}" in FACTS
            for subject in self.hosts[owner].subjects[:MOST_SUBJECTS]
            for name in subject.facts
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
        rows = self.all_of(check.kind)
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
                    Reason(value.why)
                    if isinstance(value, Garbled)
                    else self.reason(name, rows.subjects[row], rows.owners[row])
                )
                if reason is not None:
                    why = f"whether it applies is not known, for {name}: {reason.why}"
                    unsure.append(Unsure(rows.place(row), structs.replace(reason, why=why)))
        kept = rows.where([judged.get(value, False) for value in values])
        return Rows(kept.subjects, kept.owners, unsure, kept.places)


_COUNTS: dict[str, tuple[SubjectKind, str]] = {
    "host.back_nics": ("nic", "back"),
    "host.front_nics": ("nic", "front"),
    "host.rdma_ports": ("rdma", ""),
    "host.gpus": ("gpu", ""),
    NIC_DEVICES: ("nic", ""),
}


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
