"""Queue pairs in the manager: totals, rates, what begins anew, what is forgotten, and what cannot be."""

from typing import Any

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace
from numpy.typing import NDArray

from cwdp.shared.bursts import BurstReport, NicBursts
from cwdp.shared.bus.messages import ClockLine, NicQueuePairs, NicSamples, QpReport, SampleReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, QP_ROW, SAMPLE_ROW, packed_address
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.queue_pairs.counters import FORGET_AFTER_S, MOST_ROWS, JoinedTables, NicReport, QueuePairStore
from manager.queue_pairs.sample_join import SETTLE_NS
from manager.state import FleetState
from manager.view import qp_views

S = 10**9
NIC = ("a", "eth0")


def _rows(*fields: dict[str, Any]) -> NDArray[np.void]:
    rows = np.zeros(len(fields), dtype=QP_ROW)
    rows["addr"] = np.frombuffer(packed_address("10.0.0.2"), dtype=np.uint8)
    for row, given in zip(rows, fields, strict=True):
        for name, value in given.items():
            row[name] = value
    return rows


def _hear(store: QueuePairStore, second: float, *fields: dict[str, Any]) -> None:
    store.hear([NicReport(NIC, _rows(*fields))], local_ns=round(second * S), now_s=second)


def _by_qpn(store: QueuePairStore) -> dict[int, tuple[int, float]]:
    table = store.tables[NIC]
    rates = table.rates[:, 0].tolist()
    return dict(
        zip(table.rows["qpn"].tolist(), zip(table.rows["packets"].tolist(), rates, strict=True), strict=True)
    )


def test_rates_are_those_between_two_reports() -> None:
    store = QueuePairStore()
    _hear(store, 10.0, {"qpn": 5, "packets": 100, "bytes": 1000}, {"qpn": 3, "packets": 7})
    assert np.isnan(store.tables[NIC].rates).all()
    _hear(store, 12.0, {"qpn": 5, "packets": 300, "bytes": 5000}, {"qpn": 4, "packets": 1})
    assert _by_qpn(store)[5] == (300, 100.0)
    assert store.tables[NIC].rows["qpn"].tolist() == sorted(store.tables[NIC].rows["qpn"].tolist())
    assert store.totals["packets", "egress"] == 308
    assert store.totals["bytes", "egress"] == 5000


def test_the_rate_of_what_begins_again_is_that_since_the_report_that_lacked_it() -> None:
    """As of a job that computes for ten seconds and sends for one: it is full then, not a tenth full."""
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 100})
    for second in range(2, 12):
        _hear(store, float(second), {"qpn": 6, "packets": second})
    _hear(store, 12.0, {"qpn": 5, "packets": 1100}, {"qpn": 6, "packets": 12})
    assert _by_qpn(store) == {5: (1100, 1000.0), 6: (12, 1.0)}
    assert store.tables[NIC].has_begun.tolist() == [True, False]
    _hear(store, 13.0, {"qpn": 5, "packets": 3100}, {"qpn": 6, "packets": 13})
    assert _by_qpn(store)[5] == (3100, 2000.0)
    assert not store.tables[NIC].has_begun.any()


def test_what_a_report_had_no_room_for_may_have_moved_all_along() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 100})
    store.hear([NicReport(NIC, _rows({"qpn": 6, "packets": 2}), unlisted=1)], local_ns=2 * S, now_s=2.0)
    _hear(store, 3.0, {"qpn": 5, "packets": 300})
    assert _by_qpn(store)[5] == (300, 100.0)
    assert not store.tables[NIC].has_begun.any()


def test_what_a_link_cannot_carry_since_the_last_report_came_with_one_that_was_lost() -> None:
    store = QueuePairStore()
    for second, sent, link_bps in ((1, 0, 1e9), (9, None, 1e9), (10, 10**9, 1e9)):
        rows = _rows() if sent is None else _rows({"qpn": 5, "bytes": sent})
        store.hear([NicReport(NIC, rows, link_bps=link_bps)], local_ns=second * S, now_s=float(second))
    assert store.tables[NIC].rates[0, 1] == pytest.approx(10**9 / 9)
    assert store.implausible == 0


def test_counters_that_fall_began_anew() -> None:
    store = QueuePairStore()
    _hear(store, 10.0, {"qpn": 5, "packets": 100, "naks": [1, 0, 0, 0, 0, 9]})
    _hear(store, 11.0, {"qpn": 5, "packets": 40, "naks": [3, 0, 0, 0, 0, 2]})
    assert _by_qpn(store)[5] == (40, 40.0)
    assert store.totals["packets", "egress"] == 140
    assert (store.totals["nak_rnr", "egress"], store.totals["nak_other", "egress"]) == (3, 11)


@pytest.mark.parametrize("absurd", [10**16, 2**63, 10**13])
def test_one_absurd_report_has_no_rate_and_counts_for_nothing(absurd: int) -> None:
    store = QueuePairStore()
    for second, sent in ((1, 0), (2, 10**6), (3, absurd), (4, 3 * 10**6), (5, 4 * 10**6)):
        _hear(store, float(second), {"qpn": 5, "bytes": sent})
        rate = float(store.tables[NIC].rates[0, 1])
        assert rate == 10**6 if second in (2, 5) else not rate > 10**7
    assert store.implausible == 1
    assert store.totals["bytes", "egress"] < 10**7


@pytest.mark.parametrize(
    ("speed_bps", "is_taken"), [(100 * 10**6, False), (10**10, True), (None, True), (0, True)]
)
def test_no_queue_pair_is_faster_than_the_link_that_its_host_tells_of(
    speed_bps: int | None, is_taken: bool
) -> None:
    state = _state()
    state.hear_hello(replace(hello("a"), nics=[replace(nic(), speed_bps=speed_bps)]), 0.0)
    for second, sent in ((1, 0), (2, 10**9), (3, 2 * 10**9)):
        rows = row_bytes(_rows({"qpn": 5, "bytes": sent}))
        state.traffic.hear_queue_pairs(_report(rows, local_ns=second * S), float(second))
    assert bool(np.isfinite(state.traffic.queue_pairs.tables[NIC].rates[0, 1])) == is_taken
    assert bool(state.traffic.reports["implausible"]) != is_taken


def test_directions_and_nics_are_apart() -> None:
    store = QueuePairStore()
    _hear(
        store,
        1.0,
        {"qpn": 5, "direction": EGRESS, "packets": 1},
        {"qpn": 5, "direction": INGRESS, "packets": 2},
    )
    store.hear([NicReport(("b", "eth0"), _rows({"qpn": 5, "packets": 4}), unlisted=3)], local_ns=1, now_s=1.0)
    assert store.count() == {"egress": 2, "ingress": 1}
    assert (store.totals["packets", "egress"], store.totals["packets", "ingress"]) == (5, 2)


def test_a_queue_pair_twice_in_one_report_counts_once() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 1}, {"qpn": 5, "packets": 9})
    assert _by_qpn(store)[5][0] == 9
    assert store.totals["packets", "egress"] == 9


def test_what_is_gone_is_forgotten_and_stays_in_the_totals() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 1})
    _hear(store, 300.0, {"qpn": 6, "packets": 1})
    store.expire(FORGET_AFTER_S + 2.0, {"a"})
    assert list(_by_qpn(store)) == [6]
    store.expire(FORGET_AFTER_S + 2.0, set())
    assert store.tables == {}
    assert store.totals["packets", "egress"] == 2


def test_what_a_host_sent_that_is_gone_is_nobodys_evidence_and_is_not_known_to_have_ended() -> None:
    for go in (lambda store: store.depart("a"), lambda store: store.expire(2.0, {"b"})):
        store = QueuePairStore()
        for second in (1.0, 2.0):
            _hear(store, second, {"qpn": 5, "packets": second})
        rows = JoinedTables(list(store.loading.values()))
        assert (rows.sends(2.0).tolist(), rows.is_unknown(2.0).tolist()) == ([True], [False])
        go(store)
        assert store.tables == {}
        assert store.count() == {"egress": 0, "ingress": 0}
        rows = JoinedTables(list(store.loading.values()))
        assert (rows.sends(2.0).tolist(), rows.is_unknown(2.0).tolist()) == ([False], [True])
        store.expire(FORGET_AFTER_S + 3.0, {"b"})
        assert not store.loading


def test_a_host_that_is_back_tells_what_it_sends_itself() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 1})
    store.depart("a")
    _hear(store, 9.0, {"qpn": 6, "packets": 1})
    assert list(store.loading) == [NIC]
    assert list(_by_qpn(store)) == [6]


def test_what_is_heard_of_again_is_forgotten_that_much_later() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 5, "packets": 1})
    store.expire(2.0, {"a"})
    _hear(store, 300.0, {"qpn": 5, "packets": 2})
    _hear(store, 400.0, {"qpn": 6, "packets": 2})
    for now_s, left in ((FORGET_AFTER_S + 2.0, [5, 6]), (FORGET_AFTER_S + 301.0, [6])):
        store.expire(now_s, {"a"})
        assert list(_by_qpn(store)) == left


def test_what_a_report_in_parts_left_out_is_remembered() -> None:
    store = QueuePairStore()
    for first, unlisted in ((0, 70), (1, 0)):
        store.hear(
            [NicReport(NIC, _rows({"qpn": first, "packets": 1}), unlisted=unlisted)], local_ns=5, now_s=1.0
        )
    assert store.tables[NIC].unlisted == 70
    store.hear([NicReport(NIC, _rows())], local_ns=6, now_s=1.25)
    assert store.tables[NIC].unlisted == 0


def test_memory_is_bounded() -> None:
    store = QueuePairStore()
    _hear(store, 1.0, {"qpn": 1})
    rows = np.zeros(MOST_ROWS, dtype=QP_ROW)
    rows["qpn"] = np.arange(MOST_ROWS)
    rows["direction"] = INGRESS
    store.hear([NicReport(NIC, rows)], local_ns=2, now_s=2.0)
    assert store.count() == {"egress": 0, "ingress": MOST_ROWS}


def _state() -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    for host, number in (("a", 1), ("b", 2)):
        said = replace(hello(host), nics=[nic(ipv4=f"10.0.0.{number}", ipv6=None)])
        state.hear_hello(said, 0.0)
    return state


def _report(rows: bytes, *, host: str = "a", nic: str = "eth0", local_ns: int = S) -> QpReport:
    return QpReport(host=host, local_ns=local_ns, nics=[NicQueuePairs(nic=nic, rows=rows)])


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (_report(b"", host="z"), "unknown_nic"),
        (_report(b"", nic="eth9"), "unknown_nic"),
        (_report(b"x"), "not_sane"),
        (_report(row_bytes(_rows({"direction": 2}))), "not_sane"),
        (_report(row_bytes(_rows({"qpn": 5}))), "ok"),
        (_report(b""), "ok"),
    ],
)
def test_reports_that_cannot_be_are_counted_and_harmless(report: QpReport, reason: str) -> None:
    state = _state()
    state.traffic.hear_queue_pairs(report, 1.0)
    assert {name for name, count in state.traffic.reports.items() if count} == {reason}
    (told,) = report.nics
    sent = SampleReport(host=report.host, nics=[NicSamples(nic=told.nic, rows=told.rows[:40])])
    state.traffic.hear_samples(sent, 1.0)


LINE = ClockLine(
    ref_local_ns=10**12,
    offset_base_ns=5 * S,
    offset_ns=0.0,
    drift=0.0,
    bound_ns=9.0,
    bound_drift=0.0,
    state="synced",
)


def test_the_timeline_is_what_most_hosts_say() -> None:
    traffic = _state().traffic
    assert traffic.timeline_ns(1.0) is None
    for second in range(9):
        wrong = second % 4 == 0
        line = replace(LINE, ref_local_ns=10**12 + second * S, offset_base_ns=-(10**15) if wrong else 5 * S)
        traffic.hear_clock(line, float(second))
    traffic.hear_clock(replace(LINE, state="unsynced"), 9.0)
    traffic.hear_clock(replace(LINE, ref_local_ns=2**63), 9.0)
    traffic.hear_clock(None, 9.0)
    assert traffic.timeline_ns(10.0) == 10**12 + 15 * S


def _samples(direction: int, peer: str, first_ns: int) -> bytes:
    rows = np.zeros(20, dtype=SAMPLE_ROW)
    rows["addr"] = np.frombuffer(packed_address(peer), dtype=np.uint8)
    rows["qpn"], rows["psn"], rows["direction"] = 5, np.arange(20), direction
    rows["time_ns"], rows["bound_ns"] = first_ns + np.arange(20), 40
    return row_bytes(rows)


def _burst(rows: bytes, *, host: str = "a", nic: str = "eth0") -> BurstReport:
    return BurstReport(host=host, nics=[NicBursts(nic=nic, rows=rows)])


def _burst_rows(count: int, **fields: int) -> NDArray[np.void]:
    """Bursts of queue pair 5 of half a second each, one a second until 100 s of the timeline."""
    rows = np.zeros(count, dtype=BURST_ROW)
    rows["addr"] = np.frombuffer(packed_address("10.0.0.2"), dtype=np.uint8)
    rows["qpn"], rows["end_ns"] = 5, S * np.arange(101 - count, 101)
    rows["start_ns"], rows["bytes"] = rows["end_ns"] - S // 2, 1000
    for name, value in fields.items():
        rows[name] = value
    return rows


def test_bursts_are_shown_with_their_queue_pair() -> None:
    state = _state()
    traffic = state.traffic
    traffic.hear_bursts(_burst(row_bytes(_burst_rows(1))), 0.0)
    traffic.hear_clock(replace(LINE, ref_local_ns=0, offset_base_ns=100 * S), 0.0)
    for second in (0, 1):
        rows = _rows({"qpn": 5, "packets": second}, {"qpn": 6}, {"qpn": 5, "direction": INGRESS})
        traffic.hear_queue_pairs(_report(row_bytes(rows), local_ns=second * S), float(second))
    traffic.hear_bursts(_burst(row_bytes(_burst_rows(3))), 0.0)
    shown = {
        (row["qpn"], row["direction"]): row["bursts"]
        for row in qp_views.queue_pairs(state, 0.0)["queue_pairs"]
    }
    assert shown[6, "egress"] is shown[5, "ingress"] is None
    assert shown[5, "egress"] == {
        "count": 3,
        "period_ns": S,
        "length_ns": S // 2,
        "bytes": 1000,
        "rate_bps": 16_000,
        "ce_marks": 0,
        "resent": 0,
        "naks": 0,
        "last_end_ns": 100 * S,
        "bound_ns": 0,
    }
    traffic.expire(1.0)
    assert traffic.bursts.of(NIC)
    state.members.hosts.pop("a")
    traffic.expire(1.0)
    assert not traffic.bursts.of(NIC)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (_burst(b"", host="z"), "unknown_nic"),
        (_burst(b"", nic="eth9"), "unknown_nic"),
        (_burst(b"x"), "not_sane"),
        (_burst(row_bytes(_burst_rows(2, direction=2))), "not_sane"),
        (_burst(row_bytes(_burst_rows(2, start_ns=2**62))), "implausible"),
    ],
)
def test_bursts_that_cannot_be_are_counted(report: BurstReport, reason: str) -> None:
    traffic = _state().traffic
    traffic.hear_clock(replace(LINE, ref_local_ns=0, offset_base_ns=100 * S), 0.0)
    traffic.hear_bursts(report, 0.0)
    assert traffic.reports[reason] == 1
    assert traffic.bursts.of(NIC) == {}


def test_queue_pairs_are_shown_with_rates_peers_and_delays() -> None:
    state = _state()
    traffic = state.traffic
    traffic.hear_clock(replace(LINE, ref_local_ns=0, offset_base_ns=100 * S), 100.0)
    for second in (100, 101):
        rows = _rows({"qpn": 5, "packets": second, "bytes": 1000 * second}, {"qpn": 6, "packets": 1})
        traffic.hear_queue_pairs(_report(row_bytes(rows), local_ns=second * S), float(second))
    traffic.hear_samples(
        SampleReport(host="a", nics=[NicSamples(nic="eth0", rows=_samples(EGRESS, "10.0.0.2", 100 * S))]),
        101.0,
    )
    came = _samples(INGRESS, "10.0.0.1", 100 * S + 7000)
    traffic.hear_samples(SampleReport(host="b", nics=[NicSamples(nic="eth0", rows=came)]), 101.0)
    traffic.join(101.0 + SETTLE_NS / S)
    answer = qp_views.queue_pairs(state, 101.5)
    assert (answer["qp_count"], answer["unlisted"]) == (2, 0)
    first, second_row = answer["queue_pairs"]
    assert (first["qpn"], first["pps"], first["bps"], first["peer"]) == (5, 1.0, 8000.0, "b/eth0")
    assert first["owd"] == {
        "samples": 20,
        "min_ns": 7000,
        "p50_ns": 7000,
        "p99_ns": 7000,
        "max_ns": 7000,
        "bound_ns": 80,
    }
    assert (second_row["owd"], second_row["pps"]) == (None, 0.0)
    assert [row["pps"] for row in qp_views.queue_pairs(state, 110.0)["queue_pairs"]] == [0.0, 0.0]
    assert qp_views.queue_pairs(state, 101.5, host="b")["queue_pairs"] == []
    assert len(qp_views.queue_pairs(state, 101.5, host="a/eth0", limit=1)["queue_pairs"]) == 1
    for sort in qp_views.SORTS:
        assert qp_views.queue_pairs(state, 101.5, sort=sort)["qp_count"] == 2


def test_a_hosts_nics_are_heard_together_as_one_by_one() -> None:
    """The same queue pairs again and again, others, none, a NIC twice in one report, faster than its link, another port."""
    draw = np.random.default_rng(11)
    together, apart = QueuePairStore(), QueuePairStore()
    packets = np.zeros((4, 6), np.uint64)
    for turn in range(1, 60):
        packets += draw.integers(0, 1000, packets.shape).astype(np.uint64)
        if draw.random() < 0.1:
            packets[draw.integers(4)] = 0
        reports = []
        for number in draw.permutation([0, 1, 2, 3, int(draw.integers(4))]).tolist():
            some = range(6) if draw.random() < 0.8 else range(int(draw.integers(6)))
            fields = [
                {
                    "qpn": qpn,
                    "direction": int(qpn > 3),
                    "packets": packets[number, qpn],
                    "bytes": packets[number, qpn] * 4096,
                    "sport": 50_000 + int(draw.random() < 0.05),
                }
                for qpn in some
            ]
            nic, link_bps = ("a", f"eth{number}"), 1e9 if number else 1e6
            reports.append(NicReport(nic, _rows(*fields), unlisted=int(draw.integers(2)), link_bps=link_bps))
        together.hear(reports, local_ns=turn * S, now_s=float(turn))
        for report in reports:
            apart.hear([report], local_ns=turn * S, now_s=float(turn))
    assert together.totals == apart.totals
    assert together.implausible == apart.implausible > 0
    assert together.tables.keys() == apart.tables.keys()
    for nic, table in together.tables.items():
        other = apart.tables[nic]
        for name in ("keys", "rows", "local_ns", "heard_s", "turned_s", "has_begun", "rates"):
            np.testing.assert_array_equal(getattr(table, name), getattr(other, name))


def test_a_part_of_a_report_that_cannot_be_spoils_no_other() -> None:
    """Idle NICs, unknown ones, bytes that are no rows and a direction that there is not: counted, each part for itself."""
    good, other = (row_bytes(_rows({"qpn": qpn, "packets": 7}, {"qpn": 9, "packets": 1})) for qpn in (5, 6))
    parts = [
        ("eth0", good),
        ("eth9", good),
        ("eth1", b"x"),
        ("eth1", row_bytes(_rows({"direction": 2}))),
        ("eth1", other),
        ("eth2", b""),
    ]
    together, apart = (
        FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False) for _ in range(2)
    )
    nics = [nic(f"eth{i}", ipv4=f"10.0.0.{i}", ipv6=None) for i in range(3)]
    for state in (together, apart):
        state.hear_hello(replace(hello("a"), nics=nics), 1.0)
    told = [NicQueuePairs(nic=name, rows=rows) for name, rows in parts]
    together.traffic.hear_queue_pairs(QpReport(host="a", local_ns=S, nics=told), 1.0)
    for part in told:
        apart.traffic.hear_queue_pairs(QpReport(host="a", local_ns=S, nics=[part]), 1.0)
    idle = [NicQueuePairs(nic=one.ifname, rows=b"") for one in nics]
    for state in (together, apart):
        state.traffic.hear_queue_pairs(QpReport(host="a", local_ns=2 * S, nics=idle), 2.0)
    assert together.traffic.reports == apart.traffic.reports
    assert together.traffic.reports == {"ok": 6, "unknown_nic": 1, "not_sane": 2, "implausible": 0}
    assert together.traffic.queue_pairs.totals == apart.traffic.queue_pairs.totals
    mine, theirs = (state.traffic.queue_pairs.tables for state in (together, apart))
    assert mine.keys() == theirs.keys()
    for name, table in mine.items():
        np.testing.assert_array_equal(table.rows, theirs[name].rows)
