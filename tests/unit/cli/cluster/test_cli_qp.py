"""`cwdp qp` and `cwdp event`: what they ask, what they show, and what they refuse."""

import json
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from cwdp.cli import main, tables
from cwdp.cli.cluster import event, qp
from cwdp.cli.local import queue_pairs
from cwdp.cli.local.queue_pairs import LocalQueuePairs
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.shared.bus.messages import ACTUATORS
from manager.view.qp_views import SORTS
from tests.unit.cli.answering import Answering, answering

ROW = {
    "host": "h1",
    "nic": "nic0",
    "direction": "egress",
    "peer_addr": "10.2.0.1",
    "peer": "h3/nic0",
    "qpn": 16_777_215,
    "sport": 50_000,
    "slice": 0,
    "packets": 123_456_789,
    "bytes": 10**12,
    "pps": 12_345_678.0,
    "bps": 399.2e9,
    "paced_bps": None,
    "ce_marks": 0,
    "cnps": 7,
    "acks": 0,
    "naks": {"rnr": 1, "psn_sequence": 1200},
    "psn_retransmitted": 3,
    "psn_gaps": 4,
    "psn_reordered": 5,
    "age_s": 0.62,
    "owd": {
        "samples": 256,
        "min_ns": 5_500,
        "p50_ns": 6_000,
        "p99_ns": 12_000,
        "max_ns": 99_000_000,
        "bound_ns": 80,
    },
    "bursts": {
        "count": 1024,
        "period_ns": 1_003_000_000,
        "length_ns": 599_000_000,
        "bytes": 10**9,
        "rate_bps": 399_100_000_000,
        "ce_marks": 12_345,
        "resent": 3,
        "naks": 0,
        "last_end_ns": 1_795_254_130_000_000_000,
        "bound_ns": 80,
    },
}
UNKNOWN = ROW | {
    "peer": None,
    "pps": None,
    "bps": None,
    "owd": None,
    "bursts": None,
    "direction": "ingress",
    "host": None,
}
ANSWER = {"qp_count": 12, "unlisted": 3, "queue_pairs": [ROW, UNKNOWN]}
EVENT = {
    "time_s": 1_795_254_130.3134,
    "host": "h1",
    "nic": "nic0",
    "kind": "path_down",
    "detail": "to 10.2.0.1 from port 50000: silent for 11.8 ms, 9 pulses unanswered",
    "path": None,
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Answering]:
    return answering(monkeypatch, qp, event, answer=ANSWER)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_both_sides_sort_by_the_same() -> None:
    assert tuple(SORTS) == qp.SORTS


def test_queue_pairs_within_80_columns(client: type[Answering]) -> None:
    output = _run("qp", "--host", "h1", "--sort", "naks")
    assert max(map(len, output.splitlines())) <= 80
    for shown in ("399G", "12.3M", "1.2k", "2 of 12", "3 more moved", "0.6 s"):
        assert shown in output
    assert client.asked == [("/v1/qp", {"host": "h1", "sort": "naks", "limit": 0})]


def test_what_is_paced_is_shown_where_there_is_any(client: type[Answering]) -> None:
    client.answer = ANSWER | {"queue_pairs": [ROW | {"paced_bps": 14.2e6}, UNKNOWN]}
    output = _run("qp")
    assert max(map(len, output.splitlines())) <= 80
    assert "paced" in output
    assert "14.2M" in output
    client.answer = ANSWER
    assert "paced" not in _run("qp")


def test_delays_of_what_leaves(client: type[Answering]) -> None:
    output = _run("qp", "--owd", "--limit", "5")
    assert max(map(len, output.splitlines())) <= 80
    for shown in ("5,500 ns", "99.0 ms", "256"):
        assert shown in output
    assert client.asked[0][1]["limit"] == 5


def test_bursts(client: type[Answering]) -> None:
    output = _run("qp", "--bursts")
    assert max(map(len, output.splitlines())) <= 80
    for shown in ("1024", "1,003.0 ms", "599.0 ms", " 1G ", "399G", "12.3k"):
        assert shown in output
    client.answer = ANSWER | {"queue_pairs": [ROW | {"bursts": ROW["bursts"] | {"rate_bps": None}}]}  # type: ignore[operator]
    assert "399G" not in _run("qp", "--bursts")


def test_one_view_at_a_time() -> None:
    result = CliRunner().invoke(main, ["qp", "--owd", "--bursts"])
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_queue_pairs_for_programs(client: type[Answering]) -> None:
    assert json.loads(_run("qp", "--json")) == ANSWER


@pytest.mark.parametrize("other", [("--host", "h1"), ("--owd",), ("--bursts",)])
def test_an_interface_of_this_host_needs_no_manager(other: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["qp", "--dev", "lo", *other])
    assert result.exit_code == 2
    assert "--dev reads this host's dataplane" in result.stderr


def test_events(client: type[Answering]) -> None:
    client.answer = {"events": [EVENT], "more": False}
    output = _run("event", "--since", "1.5h", "--host", "h1", "--kind", "path_down", "--kind", "path up")
    assert max(map(len, output.splitlines())) <= 80
    assert "path down" in output
    assert ".313" in output
    asked = {"host": "h1", "limit": 1000, "kind": "path_down,path_up", "since": "-5400.0"}
    assert client.asked == [("/v1/events", asked)]


MOVE = {
    "host": "h1",
    "nic": "nic0",
    "dst_addr": "10.2.0.1",
    "qpn": 4711,
    "what": "moved",
    "sport": 50_001,
    "backup_sport": 50_002,
    "switches": ["l1", "s2", "l2"],
    "before_sport": 50_003,
    "before_backup_sport": None,
    "before_switches": ["l1", "s1", "l2"],
    "why": "l1 > s1 was wanted for 142% of what it carries, now 94%",
}


def test_changes_with_why_before_and_after(client: type[Answering]) -> None:
    by_hand = EVENT | {"kind": "steer_set", "detail": "by alice: this", "why": "[b]s1[/b] is mended"}
    connection = MOVE | {"dst_addr": "tcp:10.2.0.2", "qpn": 41_556 << 16 | 5201, "before_sport": None}
    moved = EVENT | {
        "kind": "qp_moved",
        "detail": "9 queue pairs",
        "moves": {"count": 9, "listed": [MOVE, connection]},
    }
    client.answer = {"events": [by_hand, moved], "more": False}
    result = CliRunner().invoke(main, ["event", "--kind", "change"], env={"COLUMNS": "300"})
    assert "by alice: this; why: [b]s1[/b] is mended" in result.stdout
    ports = "50003 over s1 -> 50001 over s2, backup 50002"
    assert f"h1/nic0 > 10.2.0.1 QPN 4711: {ports}: l1 > s1 was wanted for 142%" in result.stdout
    assert "h1/nic0:41556 > 10.2.0.2:5201: its own port over s1 -> 50001" in result.stdout
    assert "and 7 more" in result.stdout
    assert "4711" not in _run("event")
    assert max(map(len, _run("event", "--kind", "change").splitlines())) <= 80


@pytest.mark.parametrize("since", ["", "5", "h", "-1h", "5 h", "5y", "25:00", "2026-13-01"])
def test_a_time_of_another_form(since: str) -> None:
    result = CliRunner().invoke(main, ["event", "--since", since])
    assert result.exit_code == 2
    assert "give one like 10m, 3d, 17:05" in result.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0, "0"), (999, "999"), (999.4, "999"), (1000, "1k"), (999_600, "1M"), (4e12, "4T")],
)
def test_quantities(value: float | None, shown: str) -> None:
    assert tables.quantity(value) == shown


class _Maps:
    """The tables of an interface."""

    def __init__(self, _where: object) -> None:
        self.qps = {direction: np.zeros(16, dtype=abi.QP) for direction in Direction}

    def qp_places_made(self) -> int:
        """A few more each time."""
        return time.monotonic_ns()

    def close(self) -> None:
        pass


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalQueuePairs:
    monkeypatch.setattr(queue_pairs, "Maps", _Maps)
    monkeypatch.setattr(queue_pairs, "require_loaded", lambda _: None)
    monkeypatch.setattr(queue_pairs, "tree", SimpleNamespace(require_privileges=lambda: None))
    return LocalQueuePairs("nic0")


def _count(local: LocalQueuePairs, place: int, packets: int) -> None:
    record = local._maps.qps[Direction.EGRESS][place]
    record["tag"], record["key"]["qpn"] = place + 2, place
    record["packets"], record["bytes"] = packets, 1000 * packets


def test_rates_without_a_manager(local: LocalQueuePairs, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=100.0)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(queue_pairs, "time", clock)
    _count(local, 1, 100)
    _count(local, 2, 100)
    with local:
        clock.now_s = 102.0
        _count(local, 2, 300)
        _count(local, 3, 50)
        answer = local.read("rate", 0)
        assert [(row["qpn"], row["pps"], row["bps"]) for row in answer["queue_pairs"]] == [
            (2, 100.0, 800_000.0),
            (3, 25.0, 200_000.0),
            (1, 0.0, 0.0),
        ]
        clock.now_s = 103.0
        _count(local, 2, 10)
        answer = local.read("bytes", 1)
        assert (answer["qp_count"], len(answer["queue_pairs"])) == (3, 1)
        assert answer["queue_pairs"][0]["qpn"] == 1
        for sort in qp.SORTS:
            assert local.read(sort, 0)["qp_count"] == 3


def test_a_table_of_queue_pairs_is_drawn_for_a_terminal() -> None:
    terminal = Console(width=110, force_terminal=True)
    with terminal.capture() as captured:
        terminal.print(qp._counts(ANSWER))
    assert "h1/nic0 > h3/nic0 16777215" in captured.get()


def shimmed(actuator: str, qpn: int, job: str = "slurm:4711", **changes: Any) -> dict[str, Any]:
    """A row of a queue pair of which a program has told."""
    process = {"pid": 1_234_567, "name": "python3", "cgroup": "/x", "job": job, "lqpn": qpn}
    return ROW | {"qpn": qpn, "actuator": actuator, "process": process, "naks": {"rnr": 0}} | changes


def test_queue_pairs_of_every_actuator_within_80_columns(client: type[Answering]) -> None:
    told = [shimmed(actuator, 77 + i) for i, actuator in enumerate(ACTUATORS)]
    told[2]["process"]["job"] = ""
    client.answer = ANSWER | {"queue_pairs": [*told, ROW | {"actuator": "tc", "process": None}, UNKNOWN]}
    output = _run("qp")
    assert max(map(len, output.splitlines())) <= 80
    for shown in (*ACTUATORS, "1234567", "slurm:4711", "7 CNP", "399G"):
        assert shown in output
    client.answer = ANSWER
    assert "moved by" not in _run("qp")


@pytest.mark.parametrize("job", ["[red]x", "[/]", "ray:[b]y"])
def test_a_jobs_name_is_no_markup(client: type[Answering], job: str) -> None:
    client.answer = ANSWER | {"queue_pairs": [shimmed("mlx5dv", 7, job)]}
    assert job in _run("qp").replace("\n", "").replace(" ", "")
