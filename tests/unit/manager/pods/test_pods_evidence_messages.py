"""Evidence on its way: what is doubled, late, of a deposed leader or absurd is not added."""

from typing import Any

import msgspec
import numpy as np
import pytest
from test_pods_evidence import Fleet, filled

from cwdp.shared.bus.messages import decode, encode
from cwdp.shared.bus.packing import packed, row_bytes, rows_of, unpacked
from manager.faults.told import Counts
from manager.pods.evidence import JointSums, Snapshot, Sums, Table, Teller, joined
from manager.pods.evidence_messages import (
    CLASS_ROW,
    FORGET_S,
    FRESH_S,
    LINK_ROW,
    MOST_PODS,
    RANKS_ROW,
    SUMS_ROW,
    Evidence,
    Inbox,
    PackedTable,
    evidence,
)


class Pod:
    """What a pod has to tell."""

    def __init__(self, seed: int = 3) -> None:
        rng = np.random.default_rng(seed)
        fleet = Fleet(rng, 1, by_group=False)
        sent = rng.integers(1, 9, (40, len(fleet.names))) * fleet.matrix.known
        lost = rng.binomial(sent, 0.05)
        teller = Teller(fleet.matrix)
        self.table: Table = teller.table
        queued_ns = rng.exponential(1e5, sent.shape)
        history = filled(sent.astype(float), lost.astype(float), queued_ns)
        self.sums: Sums = teller.sums(Snapshot.of(history, ~fleet.matrix.known))
        assert self.sums.ranks.any()
        self.packed = PackedTable.of(self.table)

    def says(self, pod: str = "a", *, epoch: int = 7, seq: int = 1, sums: Sums | None = None) -> Evidence:
        message = evidence(pod, epoch, seq, self.packed, self.sums if sums is None else sums)
        return decode(Evidence, encode(message))


class Now:
    """A clock that is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_what_arrives_is_what_was_told() -> None:
    pod, inbox = Pod(), Inbox()
    inbox.hear(pod.says())
    (heard,) = inbox.fresh().values()
    assert heard.table.links == pod.table.links
    assert np.array_equal(heard.table.class_of, pod.table.class_of)
    for name in ("sent", "lost", "all_sent", "all_lost", "late", "seen", "ranks"):
        assert np.array_equal(getattr(heard.sums, name), getattr(pod.sums, name)), name


def test_what_is_lost_or_doubled_or_late_is_not_added_twice() -> None:
    pod, inbox = Pod(), Inbox()
    for seq in (1, 3, 3, 2):
        inbox.hear(pod.says(seq=seq))
    assert inbox.reports == {"ok": 2, "not_newer": 2, "not_sane": 0, "too_many_pods": 0}
    heard = list(inbox.fresh().values())
    together = JointSums(joined([each.table for each in heard]), [each.sums for each in heard])
    assert together.totals(-1) == (pod.sums.all_sent[-1], pod.sums.all_lost[-1])


def test_a_deposed_leader_is_not_heard_and_one_on_a_bus_that_began_anew_is() -> None:
    pod, now = Pod(), Now()
    inbox = Inbox(now)
    inbox.hear(pod.says(epoch=8, seq=1))
    inbox.hear(pod.says(epoch=7, seq=99))
    assert inbox.reports["not_newer"] == 1
    now.s += FORGET_S
    inbox.hear(pod.says(epoch=1, seq=1))
    assert inbox.reports["ok"] == 2


def test_a_pod_that_falls_silent_counts_no_more() -> None:
    pod, now = Pod(), Now()
    inbox = Inbox(now)
    inbox.hear(pod.says("b"))
    now.s += FRESH_S / 2
    inbox.hear(pod.says("a"))
    assert list(inbox.fresh()) == ["a", "b"]
    now.s += FRESH_S / 2
    assert list(inbox.fresh()) == ["a"]


def changed(message: Evidence, part: str, row: Any, change: Any) -> Evidence:
    rows = rows_of(unpacked(getattr(message, part)), row)
    change(rows)
    return msgspec.structs.replace(message, **{part: packed(row_bytes(rows))})


def put(name: str, at: Any, value: int) -> Any:
    def change(rows: Any) -> None:
        rows[name][at] = value

    return change


@pytest.mark.parametrize(
    ("part", "row", "change"),
    [
        ("sums", SUMS_ROW, put("lost", (1, 4), 2**32 - 1)),
        ("sums", SUMS_ROW, put("sent", (1, 0), 2**32 - 1)),
        ("sums", SUMS_ROW, put("sent", 0, 2**32 - 1)),
        ("sums", SUMS_ROW, put("seen", 1, 2**63)),
        ("sums", SUMS_ROW, put("late", (1, 1), 2**32 - 1)),
        ("links", LINK_ROW, put("a", 0, 2**31)),
        ("links", LINK_ROW, put("a", slice(None), 0)),
        ("classes", CLASS_ROW, put("number", 0, 2**31 - 1)),
        ("classes", CLASS_ROW, put("number", 0, -5)),
        ("ranks", RANKS_ROW, put("number", 0, 2**31)),
        ("ranks", RANKS_ROW, put("counts", (0, 0), 2**16 - 1)),
    ],
    ids=[
        "lost",
        "sent",
        "sent of all",
        "seen",
        "late",
        "no such node",
        "a link twice",
        "no such class",
        "negative",
        "ranks of no class",
        "more ranks than losses",
    ],
)
def test_absurd_numbers_are_refused(part: str, row: Any, change: Any) -> None:
    pod, inbox = Pod(), Inbox()
    inbox.hear(changed(pod.says(), part, row, change))
    assert inbox.reports["not_sane"] == 1
    assert inbox.fresh() == {}
    inbox.hear(pod.says())
    inbox.hear(changed(pod.says(seq=2), part, row, change))
    assert (inbox.reports["ok"], inbox.reports["not_sane"]) == (1, 2)


@pytest.mark.parametrize("counts", [Counts(windows=-1), Counts(lost=1), Counts(sent=-1, lost=-1)])
def test_absurd_counts_are_refused(counts: Counts) -> None:
    pod, inbox = Pod(), Inbox()
    inbox.hear(msgspec.structs.replace(pod.says(), counted={"a/1/1": Counts(windows=3, sent=9, lost=9)}))
    inbox.hear(msgspec.structs.replace(pod.says(seq=2), counted={"a/1/1": counts}))
    assert (inbox.reports["ok"], inbox.reports["not_sane"]) == (1, 1)


@pytest.mark.parametrize("part", ["nodes", "links", "classes", "sums", "ranks"])
def test_bytes_that_are_nothing_are_refused(part: str) -> None:
    inbox = Inbox()
    for data in (b"", b"\0" * 9, packed(b"\1\2\3"), packed(b"\xc1")):
        inbox.hear(msgspec.structs.replace(Pod().says(), **{part: data}))
    assert inbox.reports["not_sane"] == 4


def test_links_between_no_nodes_at_all_are_refused() -> None:
    """Also those whose ends would be the first node."""
    pod, inbox = Pod(), Inbox()
    no_nodes = msgspec.structs.replace(pod.says(), nodes=packed(msgspec.msgpack.encode([])))
    one_link = packed(row_bytes(np.zeros(1, LINK_ROW)))
    inbox.hear(msgspec.structs.replace(no_nodes, links=one_link))
    assert inbox.reports["not_sane"] == 1


def test_there_are_no_more_pods_than_can_be() -> None:
    pod, inbox = Pod(), Inbox()
    for i in range(MOST_PODS + 1):
        inbox.hear(pod.says(f"p{i}"))
    assert (inbox.reports["ok"], inbox.reports["too_many_pods"]) == (MOST_PODS, 1)
