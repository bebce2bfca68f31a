"""The evidence of a pod as it travels, and what of it is taken in.

Each message says all that its pod knows of the last windows and replaces the one before, so what is lost, doubled or late
is never added twice. Its arrays are packed as all rows on the bus are: at most 1 MiB each before that.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from cwdp.shared.bus.packing import packed, row_bytes, rows_of, unpacked
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Subject
from manager.faults.losses import SPANS
from manager.faults.told import Counts
from manager.pods.evidence import NO_CLASS, RANK_BINS, Sums, Table, told_subjects
from manager.pods.link_names import links_of, named

FRESH_S = 2.0
"""Evidence that is older tells nothing of now: its pod decides alone until it is heard again."""

FORGET_S = 5.0
"""After so long a pod's leader may count anew: a bus that lost its store begins again with its epochs."""

MOST_PODS = 64
MOST_NAME_BYTES = 256
MOST_SENT_A_WINDOW = 10_000_000
"""No pod sends so many probes in a tenth of a second."""

REASONS = ("ok", "not_newer", "not_sane", "too_many_pods")

SUMS_ROW = np.dtype(
    [
        ("sent", "<u4", (len(SPANS),)),
        ("lost", "<u4", (len(SPANS),)),
        ("late", "<u4", (2,)),
        ("seen", "<u8"),
    ]
)
"""Of a class: see `Sums`. The first row of a message is of all probes."""

LINK_ROW = np.dtype([("a", "<u4"), ("b", "<u4")])
"""The places of a link's ends in the list of nodes."""

CLASS_ROW = np.dtype([("number", "<i4")])

RANKS_ROW = np.dtype([("number", "<u4"), ("counts", "<u2", (RANK_BINS,))])
"""Of a class that lost probes; see `Sums`."""

MOST_COUNTED = 256


class Evidence(Struct, frozen=True, kw_only=True):
    """What a pod's probes tell.

    Attributes:
        pod: whose they are.
        epoch: its leader's; a later leader's is higher.
        seq: higher with each message of a leader.
        nodes: what its links lie between, each name packed with the others.
        links: packed LINK_ROWs.
        classes: packed CLASS_ROWs, of each subject that the links give.
        sums: packed SUMS_ROWs, of all probes and of each class.
        ranks: packed RANKS_ROWs.
        explained: the name of what was known to explain losses that are left out.
        counted: what came of probes over what was found by these sums, by its key.
    """

    pod: str
    epoch: int
    seq: int
    nodes: bytes
    links: bytes
    classes: bytes
    sums: bytes
    ranks: bytes
    explained: int = 0
    counted: Annotated[dict[str, Counts], Meta(max_length=MOST_COUNTED)] = {}


@dataclass(frozen=True)
class Heard:
    """Evidence that was taken in; `heard_s` is by the clock of who heard it, the rest as in `Evidence`."""

    table: Table
    sums: Sums
    heard_s: float
    epoch: int = 0
    explained: int = 0
    counted: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True)
class PackedTable:
    """A table as it travels: made once for many messages."""

    nodes: bytes
    links: bytes
    classes: bytes

    @classmethod
    def of(cls, table: Table, same_links: "PackedTable | None" = None) -> "PackedTable":
        """Pack one.

        Args:
            table: which.
            same_links: of a table with the same links, where there is one.

        Raises:
            TooLargeError: there are more links than a message holds.
        """
        classes = packed(row_bytes(table.class_of.astype(CLASS_ROW["number"]).view(CLASS_ROW)))
        if same_links is not None:
            return cls(same_links.nodes, same_links.links, classes)
        nodes, ends = named(table.links)
        return cls(nodes, packed(row_bytes(np.array(ends, LINK_ROW))), classes)


def evidence(
    pod: str,
    epoch: int,
    seq: int,
    table: PackedTable,
    sums: Sums,
    *,
    explained: int = 0,
    counted: Mapping[str, Counts] | None = None,
) -> Evidence:
    """A message; see `Evidence`.

    Raises:
        TooLargeError: there are more classes than a message holds.
    """
    rows = np.zeros(1 + len(sums.seen), SUMS_ROW)
    rows["sent"][0], rows["lost"][0] = sums.all_sent, sums.all_lost
    rows["sent"][1:], rows["lost"][1:] = sums.sent.T, sums.lost.T
    rows["late"][1:], rows["seen"][1:] = sums.late.T, sums.seen
    return Evidence(
        pod=pod,
        epoch=epoch,
        seq=seq,
        nodes=table.nodes,
        links=table.links,
        classes=table.classes,
        sums=packed(row_bytes(rows)),
        ranks=packed(row_bytes(_ranks_rows(sums.ranks))),
        explained=explained,
        counted=dict(counted or {}),
    )


def _ranks_rows(ranks: NDArray[np.float64]) -> NDArray[np.void]:
    """Of the classes that have some."""
    number = np.flatnonzero(ranks.any(axis=0))
    rows = np.zeros(len(number), RANKS_ROW)
    rows["number"], rows["counts"] = number, np.minimum(ranks[:, number].T, 0xFFFF)
    return rows


def table_of(message: Evidence, same_links: Table | None = None) -> Table:
    """What a message tells of.

    Args:
        message: which.
        same_links: of an earlier one with the same links, where there is one.

    Raises:
        ValueError: it cannot be.
    """
    links, subjects = _links(message) if same_links is None else (same_links.links, same_links.subjects)
    class_of = np.array(rows_of(unpacked(message.classes), CLASS_ROW)["number"], np.int32)
    table = Table(links, subjects, class_of)
    used = np.unique(class_of[class_of != NO_CLASS])
    if len(class_of) != len(table.subjects) or not np.array_equal(used, np.arange(len(used))):
        raise ValueError("causes that the links do not give")
    return table


def _links(message: Evidence) -> tuple[tuple[DirectedLink, ...], tuple[Subject, ...]]:
    """The links of a message, and what they belong to.

    Raises:
        ValueError: they cannot be.
    """
    nodes, links = links_of(message.nodes, rows_of(unpacked(message.links), LINK_ROW))
    if len(set(nodes)) < len(nodes) or not all(map(_is_sane, nodes)):
        raise ValueError("nodes that cannot be")
    if len(set(links)) < len(links) or any(a == b for a, b in links):
        raise ValueError("links that cannot be")
    subjects, _ = told_subjects(tuple(links))
    return tuple(links), subjects


def _is_sane(node: str) -> bool:
    return bool(node) and node.isprintable() and len(node.encode()) <= MOST_NAME_BYTES


def sums_of(message: Evidence, classes: int) -> Sums:
    """The sums of a message whose table has so many classes.

    Raises:
        ValueError: they, or what it has counted, cannot be.
    """
    if not all(0 <= each.lost <= each.sent and each.windows >= 0 for each in message.counted.values()):
        raise ValueError("counts that cannot be")
    rows = rows_of(unpacked(message.sums), SUMS_ROW)
    if len(rows) != 1 + classes or not _are_sane(rows):
        raise ValueError("sums that cannot be")
    ranked = rows_of(unpacked(message.ranks), RANKS_ROW)
    if len(ranked) and ranked["number"].max() >= classes:
        raise ValueError("ranks of no class")
    ranks = np.zeros((RANK_BINS, classes))
    ranks[:, ranked["number"]] = ranked["counts"].T
    if (ranks.sum(axis=0) > rows["lost"][1:, -1]).any():
        raise ValueError("more ranks than probes lost")
    sent, lost, late = (rows[name].astype(np.float64).T for name in ("sent", "lost", "late"))
    return Sums(
        sent=sent[:, 1:],
        lost=lost[:, 1:],
        all_sent=sent[:, 0],
        all_lost=lost[:, 0],
        late=late[:, 1:],
        seen=rows["seen"][1:].astype(np.uint64),
        ranks=ranks,
    )


def _are_sane(rows: NDArray[np.void]) -> bool:
    """No more lost than sent, no more of a class than of all, no less in longer spans, no window that is not kept."""
    sent, lost, late = rows["sent"], rows["lost"], rows["late"]
    rising = (np.diff(sent.astype(np.int64)) >= 0).all() and (np.diff(lost.astype(np.int64)) >= 0).all()
    whole = (lost <= sent).all() and (late[:, 1] <= late[:, 0]).all() and (late <= sent[:, :1]).all()
    part = (sent[1:] <= sent[0]).all() and (lost[1:] <= lost[0]).all()
    possible = (sent[0] <= np.array(SPANS) * MOST_SENT_A_WINDOW).all() and (
        rows["seen"] < (1 << SPANS[-1])
    ).all()
    shown = ((rows["seen"][1:] > 0) == (lost[1:, -1] > 0)).all()
    return bool(rising and whole and part and possible and shown)


class Inbox:
    """The latest evidence of each pod.

    Args:
        now_s: a clock that only ever goes on.

    Attributes:
        reports: messages by what became of them (`REASONS`).
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._now_s = now_s
        self._latest: dict[str, tuple[Evidence, Heard]] = {}

    def hear(self, message: Evidence) -> None:
        """Take a message in, or count why not."""
        self.reports[self._take(message)] += 1

    def _take(self, message: Evidence) -> str:
        now_s = self._now_s()
        self._latest = {
            pod: latest for pod, latest in self._latest.items() if now_s - latest[1].heard_s < FORGET_S
        }
        before = self._latest.get(message.pod)
        if before is None and len(self._latest) >= MOST_PODS:
            return "too_many_pods"
        if before is not None and (message.epoch, message.seq) <= (before[0].epoch, before[0].seq):
            return "not_newer"
        try:
            table = _table(message, before)
            sums = sums_of(message, table.classes)
            heard = Heard(table, sums, now_s, message.epoch, message.explained, message.counted)
        except (ValueError, msgspec.DecodeError):
            return "not_sane"
        self._latest[message.pod] = message, heard
        return "ok"

    def fresh(self) -> dict[str, Heard]:
        """What is known of now, by pod, in the order of their names."""
        since_s = self._now_s() - FRESH_S
        return {
            pod: self._latest[pod][1]
            for pod in sorted(self._latest)
            if self._latest[pod][1].heard_s > since_s
        }


def _table(message: Evidence, before: tuple[Evidence, Heard] | None) -> Table:
    """What a message tells of; what is the same as in the message before is the same object.

    Raises:
        ValueError: it cannot be.
    """
    if before is None:
        return table_of(message)
    earlier, table = before[0], before[1].table
    if (message.nodes, message.links) != (earlier.nodes, earlier.links):
        return table_of(message)
    return table if message.classes == earlier.classes else table_of(message, table)
