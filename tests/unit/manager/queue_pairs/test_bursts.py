"""The latest bursts of queue pairs, and what they come to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS
from manager.queue_pairs.bursts import (
    KEPT,
    LATE_NS,
    LATEST,
    LONGEST_NS,
    MOST_BYTES,
    REMEMBERED_NS,
    SELDOM,
    BurstStore,
)

NIC = ("h1", "roce0")
NOW_NS = 10**18
MS, SECOND_NS = 10**6, 10**9
NOBODY = bytes(16)


def rows(count: int = 1, **fields: int) -> NDArray[np.void]:
    """Bursts of 600 ms, one a second, until now."""
    made = np.zeros(count, BURST_ROW)
    made["start_ns"] = NOW_NS - SECOND_NS * np.arange(count, 0, -1)
    made["end_ns"] = made["start_ns"] + 600 * MS
    made["bytes"] = 750_000
    for name, value in fields.items():
        made[name] = value
    return made


def _hear(store: BurstStore, told: NDArray[np.void], nic: tuple[str, str] = NIC) -> None:
    store.hear([nic], told, [len(told)], NOW_NS)


def test_what_bursts_come_to() -> None:
    store = BurstStore()
    told = rows(5, qpn=7, direction=EGRESS, ce_marks=1, resent=2, naks=3, bound_ns=40)
    told["bound_ns"][2] = 90
    _hear(store, told[3:])
    _hear(store, told[:3])
    (key,) = store.of(NIC)
    assert key == (NOBODY, 7, EGRESS)
    found = store.of(NIC)[key]
    assert (found.count, found.period_ns, found.length_ns) == (5, SECOND_NS, 600 * MS)
    assert (found.bytes, found.rate_bps) == (750_000, 10_000_000)
    assert (found.ce_marks, found.resent, found.naks, found.bound_ns) == (5, 10, 15, 90)
    assert found.last_end_ns == NOW_NS - 400 * MS


def test_a_single_one_has_no_period_and_a_short_one_no_rate() -> None:
    store = BurstStore()
    _hear(store, rows(end_ns=NOW_NS - SECOND_NS))
    (found,) = store.of(NIC).values()
    assert (found.count, found.period_ns, found.length_ns, found.rate_bps) == (1, None, 0, None)


def test_directions_queue_pairs_and_addresses_are_apart() -> None:
    store = BurstStore()
    told = rows(6)
    told["direction"] = (EGRESS, INGRESS, EGRESS, INGRESS, EGRESS, EGRESS)
    told["qpn"] = (1, 1, 2, 1, 1, 0x100)
    told["addr"][4, 15] = 9
    _hear(store, told)
    counts = {key: found.count for key, found in store.of(NIC).items()}
    far = bytes(15) + b"\x09"
    assert counts == {
        (NOBODY, 1, EGRESS): 1,
        (NOBODY, 1, INGRESS): 2,
        (NOBODY, 2, EGRESS): 1,
        (far, 1, EGRESS): 1,
        (NOBODY, 0x100, EGRESS): 1,
    }
    assert store.of(("h1", "roce1")) == {}


def test_only_the_latest_are_kept() -> None:
    store = BurstStore()
    for qpn in range(2):
        _hear(store, rows(KEPT // 2, qpn=qpn, end_ns=NOW_NS))
    assert {key[1]: found.count for key, found in store.of(NIC).items()} == {0: KEPT // 2, 1: KEPT // 2}
    assert store.whole_since_ns(NIC) is None
    latest = rows(2 * KEPT, qpn=3)
    latest["end_ns"] = NOW_NS + 1 + np.arange(len(latest))
    _hear(store, latest)
    each, over = divmod(SELDOM, 3)
    assert {key[1]: found.count for key, found in store.of(NIC).items()} == {
        0: each,
        1: each,
        3: LATEST + each + over,
    }
    (kept,) = store.since(NOW_NS + 1).values()
    assert sorted(kept["end_ns"]) == sorted(latest["end_ns"][-len(kept) :])
    assert store.whole_since_ns(NIC) == latest["end_ns"][-len(kept) - 1]


def test_what_is_read_now_does_not_change() -> None:
    store = BurstStore()
    _hear(store, rows(3, qpn=1))
    now = store.now()
    for _ in range(3):
        _hear(store, rows(KEPT - 4, qpn=2))
    assert np.array_equal(now[NIC], rows(3, qpn=1))
    assert {*store.now()[NIC]["qpn"].tolist()} == {1, 2}


def test_what_sends_often_does_not_push_out_what_sends_seldom() -> None:
    """One that sends eight times a second, and one that sends every 10 s, for 600 s."""
    store = BurstStore()
    often = rows(4_800, qpn=1)
    often["end_ns"] = NOW_NS - SECOND_NS // 8 * np.arange(4_800, 0, -1)
    often["start_ns"] = often["end_ns"]
    seldom = rows(60, qpn=2)
    seldom["start_ns"] = NOW_NS - 10 * SECOND_NS * np.arange(60, 0, -1)
    seldom["end_ns"] = seldom["start_ns"]
    both = np.concatenate([often, seldom])
    for one in np.split(both[np.argsort(both["end_ns"], kind="stable")], 27):
        _hear(store, one)
    counts = {key[1]: found.count for key, found in store.of(NIC).items()}
    assert counts[2] >= REMEMBERED_NS // (10 * SECOND_NS)
    assert sum(counts.values()) <= KEPT


@pytest.mark.parametrize(
    "fields",
    [
        {"end_ns": NOW_NS - 2 * SECOND_NS},
        {"start_ns": NOW_NS - LONGEST_NS, "end_ns": NOW_NS},
        {"start_ns": NOW_NS + LATE_NS, "end_ns": NOW_NS + LATE_NS},
        {"start_ns": NOW_NS - LATE_NS, "end_ns": NOW_NS - LATE_NS},
        {"start_ns": -(2**63), "end_ns": 2**63 - 1},
        {"start_ns": -(2**63), "end_ns": -(2**63)},
        {"start_ns": 2**63 - 1, "end_ns": NOW_NS},
        {"bytes": MOST_BYTES},
    ],
)
def test_what_cannot_be_is_counted_and_left_out(fields: dict[str, int]) -> None:
    store = BurstStore()
    _hear(store, rows(**fields))
    assert (store.of(NIC), store.implausible) == ({}, 1)
    _hear(store, np.concatenate([rows(**fields), rows()]))
    assert ([found.count for found in store.of(NIC).values()], store.implausible) == ([1], 2)


def test_hosts_that_are_gone_are_forgotten() -> None:
    store = BurstStore()
    _hear(store, rows())
    _hear(store, rows(), ("h2", "roce0"))
    store.keep_only({"h2"})
    assert store.of(NIC) == {}
    assert len(store.of(("h2", "roce0"))) == 1


def test_bursts_of_several_nics_are_told_together() -> None:
    store = BurstStore()
    told = np.concatenate([rows(2, qpn=1), rows(3, qpn=2), rows(start_ns=NOW_NS, end_ns=0), rows(1, qpn=3)])
    store.hear([NIC, ("h1", "roce1"), ("h1", "roce2"), ("h1", "roce3")], told, [2, 3, 1, 1], NOW_NS)
    assert {nic[1]: kept["qpn"].tolist() for nic, kept in store.now().items()} == {
        "roce0": [1, 1],
        "roce1": [2, 2, 2],
        "roce3": [3],
    }
    assert store.implausible == 1
