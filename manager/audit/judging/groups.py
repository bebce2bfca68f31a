"""Which subjects are compared with each other: those of like hardware.

A host's hardware is its product, its processor's model, and how many of which NICs and GPUs it has. A NIC is compared with
those of its device and role on hosts of like hardware, an RDMA port with those of its type and role, a GPU with those of
its product.

A host that has lost a part, or got another, must not leave its group by that: its faults would be compared with nothing.
So a single host, or hosts that are a tenth or less, join the larger group of the same product and processor with which they
have most parts in common, if that is at least half of them.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from manager.audit.judging.fleet import Fleet, Rows
from manager.audit.judging.values import Known, printable

MOST_JOINED = 16
"""Groups of a product and processor that others may join: the largest."""

SMALL_SHARE = 0.1
LEAST_COMMON = 0.5

LACKS = "\0"
"""In the place of a text that a subject cannot tell."""

Model = tuple[str, str]
Parts = tuple[tuple[str, int], ...]

_TOLD_BY = {"nic": "nic.device", "rdma": "rdma.device_type", "gpu": "gpu.product"}


class Groups:
    """The groups of a fleet. Numbers of groups are places in `labels`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._of_host = _join(_hardware(fleet))
        self._numbers: dict[object, int] = {}
        self.labels: list[str] = []

    def of(self, rows: Rows, kind: str) -> list[int | None]:
        """The group of each row; None where its hardware is not known."""
        return rows.group_ids(lambda each: self._assign(each, kind))

    def _assign(self, rows: Rows, kind: str) -> list[int | None]:
        if kind == "host":
            return [self._number((self._of_host[owner], "", "")) for owner in rows.owners]
        parts = [
            _word(self._fleet, rows, row, _TOLD_BY[kind], value)
            for row, value in enumerate(self._fleet.column(_TOLD_BY[kind], rows, kind))
        ]
        beside: defaultdict[object, set[str]] = defaultdict(set)
        if LACKS in parts:
            for part, owner, subject in zip(parts, rows.owners, rows.subjects, strict=True):
                if part and part != LACKS:
                    beside[self._of_host[owner], subject.role].add(part)
        found: list[int | None] = []
        for part, owner, subject in zip(parts, rows.owners, rows.subjects, strict=True):
            hardware, word = self._of_host[owner], part
            if part == LACKS:
                others = beside[hardware, subject.role]
                word = next(iter(others)) if len(others) == 1 else ""
            found.append(None if word is None else self._number((hardware, word, subject.role)))
        return found

    def _number(self, key: tuple[tuple[Model, Parts] | None, str, str]) -> int | None:
        hardware, part, role = key
        if hardware is None:
            return None
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.labels)
            model = hardware[0][0] or hardware[0][1] or "hosts of no known product"
            self.labels.append(printable(", ".join(word for word in (model, part, role) if word)))
        return number


def _hardware(fleet: Fleet) -> list[tuple[Model, Parts] | None]:
    """Of each host; None where its product or processor cannot be told."""
    parts: list[Counter[str]] = [Counter() for _ in fleet.hosts]
    for kind in ("nic", "gpu"):
        rows = next(each for name, each in fleet.of_kind.items() if name == kind)
        for owner, value in zip(rows.owners, fleet.column(_TOLD_BY[kind], rows, kind), strict=True):
            if isinstance(value, str):
                parts[owner][value] += 1
    hosts = fleet.of_kind["host"]
    columns = [fleet.column(name, hosts, "host") for name in ("host.product", "host.cpu_model")]
    models = [
        [_word(fleet, hosts, row, name, columns[at][row]) for row in range(len(hosts))]
        for at, name in enumerate(("host.product", "host.cpu_model"))
    ]
    return [
        None
        if product is None or cpu is None
        else ((product.strip(LACKS), cpu.strip(LACKS)), tuple(sorted(parts[owner].items())))
        for owner, (product, cpu) in enumerate(zip(*models, strict=True))
    ]


def _word(fleet: Fleet, rows: Rows, row: int, name: str, value: Known) -> str | None:
    """A text; "" where it does not apply, `LACKS` where this one cannot tell it, None where it is not known otherwise."""
    if isinstance(value, str):
        return value
    if value is not None:
        return LACKS
    reason = fleet.reason(name, rows.subjects[row], rows.owners[row])
    if reason is None:
        return ""
    return LACKS if reason.is_own else None


def _join(hardware: Sequence[tuple[Model, Parts] | None]) -> list[tuple[Model, Parts] | None]:
    """The same with those few whose parts differ joined to the many."""
    sizes = Counter(each for each in hardware if each is not None)
    families: defaultdict[Model, list[Parts]] = defaultdict(list)
    for (model, parts), _ in sizes.most_common():
        if len(families[model]) < MOST_JOINED:
            families[model].append(parts)
    joined = {}
    for model, parts in sizes:
        shares = {
            (other, others_parts): _common(parts, others_parts)
            for other, known in families.items()
            if all(mine in (word, "") for mine, word in zip(model, other, strict=True))
            for others_parts in known
            if _is_few(sizes[model, parts], sizes[other, others_parts])
        }
        best = max(shares, key=shares.__getitem__, default=None)
        if best is not None and shares[best] >= LEAST_COMMON:
            joined[model, parts] = best
    return [None if each is None else joined.get(each, each) for each in hardware]


def _is_few(few: int, many: int) -> bool:
    return few < many and (few == 1 or few <= SMALL_SHARE * (few + many))


def _common(a: Parts, b: Parts) -> float:
    """The share of the larger of two sets of parts that both have."""
    mine, others = Counter(dict(a)), Counter(dict(b))
    largest = max(mine.total(), others.total())
    return (mine & others).total() / largest if largest else 1.0
