"""Stamps of both ends joined: the right packet, or none."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from fakes import hello, nic
from numpy.typing import NDArray

from cwdp.shared.bus.records import EGRESS, INGRESS, SAMPLE_ROW, packed_address
from manager.hosts.members import Host
from manager.queue_pairs.delays import KEPT, QpDelays
from manager.queue_pairs.sample_join import (
    MOST_WAITING,
    OUTCOMES,
    REACH_NS,
    SETTLE_NS,
    STAMP,
    SampleJoin,
    join_settled,
    packet_names,
)

MS = 1_000_000
S = 1000 * MS
NOW = 10**13


def _stamps(*rows: tuple[int, int, int]) -> NDArray[np.void]:
    """Stamps of (name, direction, time), with a bound of 40 ns."""
    stamps = np.zeros(len(rows), dtype=STAMP)
    for stamp, (name, direction, time_ns) in zip(stamps, rows, strict=True):
        stamp["name"], stamp["direction"], stamp["time_ns"], stamp["bound_ns"] = name, direction, time_ns, 40
    return stamps


def _join(*rows: tuple[int, int, int], settled_ns: int = S) -> tuple[list[int], int, dict[str, int]]:
    """Delays found, stamps kept, and outcomes."""
    outcomes = Counter(dict.fromkeys(OUTCOMES, 0))
    joined, rest = join_settled(_stamps(*rows), settled_ns, outcomes)
    assert (joined["bound_ns"] == 80).all()
    return joined["owd_ns"].tolist(), len(rest), {name: n for name, n in outcomes.items() if n}


def test_a_packet_stamped_at_both_ends_has_a_delay() -> None:
    assert _join((7, EGRESS, 100), (8, EGRESS, 200), (8, INGRESS, 900), (7, INGRESS, 150)) == (
        [50, 700],
        0,
        {"joined": 2},
    )


def test_clocks_may_be_off_by_their_bounds_and_no_more() -> None:
    assert _join((7, EGRESS, 100), (7, INGRESS, 25)) == ([-75], 0, {"joined": 1})
    assert _join((7, EGRESS, 100), (7, INGRESS, 19)) == ([], 0, {"ambiguous": 2})


def test_what_was_stamped_at_one_end_only_has_none() -> None:
    assert _join((7, EGRESS, 100), (8, INGRESS, 100)) == ([], 0, {"unmatched": 2})
    assert _join((7, EGRESS, 0), (7, INGRESS, REACH_NS)) == ([], 0, {"unmatched": 2})


@pytest.mark.parametrize(
    "rows",
    [
        [(7, EGRESS, 100), (7, EGRESS, 100 + 67 * MS), (7, INGRESS, 300 + 67 * MS)],
        [(7, EGRESS, 100), (7, INGRESS, 200), (7, EGRESS, 67 * MS), (7, INGRESS, 68 * MS)],
        [(7, EGRESS, 100), (7, INGRESS, 200), (7, INGRESS, 300)],
        [(7, INGRESS, 50), (7, EGRESS, 100), (7, INGRESS, 200)],
    ],
)
def test_a_packet_sent_again_within_reach_is_ambiguous(rows: list[tuple[int, int, int]]) -> None:
    assert _join(*rows) == ([], 0, {"ambiguous": len(rows)})


def test_a_psn_that_comes_again_later_is_another_packet() -> None:
    rows = [(7, side, turn * S + delay) for turn in range(3) for side, delay in ((EGRESS, 0), (INGRESS, 90))]
    assert _join(*rows, settled_ns=5 * S) == ([90, 90, 90], 0, {"joined": 3})


def test_what_has_not_settled_waits_and_a_pair_stays_together() -> None:
    assert _join((7, EGRESS, S + 100), (7, INGRESS, S + 109), (8, EGRESS, S), (8, INGRESS, S + 9)) == (
        [9],
        2,
        {"joined": 1},
    )


def test_in_any_order_and_in_any_parts_the_same_is_found() -> None:
    rng = np.random.default_rng(1)
    count = 5000
    left = np.sort(rng.integers(NOW, NOW + 3 * S, count))
    owd = rng.integers(1000, 50 * MS, count)
    lost = rng.random(count) < 0.05
    rows = [(int(n), EGRESS, int(t)) for n, t in enumerate(left)]
    rows += [(int(n), INGRESS, int(left[n] + owd[n])) for n in np.flatnonzero(~lost)]
    heard_ns = np.array([when for _, _, when in rows]) + rng.integers(1, 800 * MS, len(rows))
    join = SampleJoin()
    found: list[int] = []
    for now_ns in range(NOW, NOW + 6 * S, 250 * MS):
        heard = np.flatnonzero((heard_ns > now_ns - 250 * MS) & (heard_ns <= now_ns))
        join.add(_stamps(*(rows[i] for i in rng.permutation(heard))))
        found += join.join(now_ns)["owd_ns"].tolist()
    assert sorted(found) == sorted(owd[~lost].tolist())
    assert join.outcomes["unmatched"] == np.count_nonzero(lost)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wide_ns", [300 * MS, 2 * S, 2**32 - 1])
def test_a_clock_that_knows_little_concerns_its_own_packets_only(seed: int, wide_ns: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(20, 200))
    rows = [
        (n, side, int(t)) for n in range(count) for side, t in ((EGRESS, n * MS), (INGRESS, n * MS + 5000))
    ]
    lost_clocks = [(count + n, side, n * MS) for n in range(8) for side in (EGRESS, INGRESS)]
    stamps = _stamps(*rows, *lost_clocks)
    stamps["bound_ns"][len(rows) :] = wide_ns
    outcomes = Counter(dict.fromkeys(OUTCOMES, 0))
    joined, _ = join_settled(rng.permutation(stamps), S, outcomes)
    known = joined[joined["bound_ns"] == 80]
    assert known["owd_ns"].tolist() == [5000] * count


def test_times_beyond_all_sense_are_given_up() -> None:
    join = SampleJoin()
    join.add(_stamps((7, EGRESS, NOW + 2 * S), (8, EGRESS, NOW - 3600 * S), (9, EGRESS, -(2**62))))
    assert len(join.join(NOW)) == 0
    assert join.outcomes["implausible"] == 3
    assert len(join.join(NOW + 10 * S)) == 0


def test_what_waits_is_bounded() -> None:
    join = SampleJoin()
    for _ in range(3):
        join.add(np.zeros(MOST_WAITING - 10, dtype=STAMP))
    assert join.outcomes["overflowed"] == 2 * (MOST_WAITING - 10)


def test_packets_are_named_apart() -> None:
    grid = np.meshgrid(np.arange(8), np.arange(8), np.arange(16), np.arange(64), indexing="ij")
    source, target, qpn, psn = (axis.ravel() for axis in grid)
    names = packet_names(source, target, qpn.astype(np.uint32), (psn << 20).astype(np.uint32))
    assert len(np.unique(names)) == len(names)


def _rows(direction: int, addr: str, qpn: int, psns: range, first_ns: int) -> NDArray[np.void]:
    rows = np.zeros(len(psns), dtype=SAMPLE_ROW)
    rows["addr"] = np.frombuffer(packed_address(addr), dtype=np.uint8)
    rows["qpn"], rows["psn"], rows["direction"], rows["sport"] = qpn, list(psns), direction, 50_000
    rows["time_ns"] = first_ns + 1000 * np.arange(len(psns))
    rows["bound_ns"] = 40
    return rows


def _fleet() -> QpDelays:
    delays = QpDelays()
    hosts = []
    for name, number in (("a", 1), ("b", 2)):
        port = nic("eth0", ipv4=f"10.0.0.{number}", ipv6=f"fd00::{number}")
        said = msgspec.structs.replace(hello(name), nics=[port])
        hosts.append(Host(hello=said, last_seen_s=0.0))
    delays.know(hosts)
    return delays


A, B = ("a", "eth0"), ("b", "eth0")


@pytest.mark.parametrize("addresses", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_each_queue_pairs_delays_are_kept(addresses: tuple[str, str]) -> None:
    delays = _fleet()
    for qpn, owd_ns in ((5, 4000), (6, 9000)):
        delays.hear(A, _rows(EGRESS, addresses[1], qpn, range(100), NOW), NOW)
        delays.hear(B, _rows(INGRESS, addresses[0], qpn, range(100), NOW + owd_ns), NOW)
    # The answers travel the other way, to another QPN.
    delays.hear(B, _rows(EGRESS, addresses[0], 9, range(50), NOW), NOW)
    delays.hear(A, _rows(INGRESS, addresses[1], 9, range(50), NOW + 7000), NOW)
    delays.join(NOW + SETTLE_NS + S)
    now_ns = NOW + 3 * S
    for where, target, qpn, samples, owd_ns in (
        (A, 1, 5, 100, 4000),
        (A, 1, 6, 100, 9000),
        (B, 0, 9, 50, 7000),
    ):
        delay = delays.delay(where, packed_address(addresses[target]), qpn, now_ns)
        assert delay is not None
        assert (delay.samples, delay.min_ns, delay.p50_ns, delay.p99_ns) == (samples, owd_ns, owd_ns, owd_ns)
        assert delay.bound_ns == 80
    assert delays.delay(A, packed_address(addresses[1]), 9, now_ns) is None
    assert delays.outcomes["joined"] == 250


def test_the_last_delays_are_kept_and_old_ones_go() -> None:
    delays = _fleet()
    delays.hear(A, _rows(EGRESS, "10.0.0.2", 5, range(1000), NOW), NOW)
    delays.hear(B, _rows(INGRESS, "10.0.0.1", 5, range(1000), NOW + 5000), NOW)
    delays.join(NOW + SETTLE_NS + S)
    address = packed_address("10.0.0.2")
    found = delays.delay(A, address, 5, NOW + S)
    assert found is not None
    assert found.samples == KEPT
    assert delays.delay(A, address, 5, NOW + 3600 * S) is None
    delays.expire(NOW + 3600 * S)
    assert len(delays) == 0


def test_strangers_are_counted() -> None:
    delays = _fleet()
    delays.hear(A, _rows(EGRESS, "10.9.9.9", 5, range(7), NOW), NOW)
    delays.hear(A, np.zeros(0, dtype=SAMPLE_ROW), NOW)
    assert delays.outcomes["unknown_address"] == 7
    assert len(delays) == 0
