"""The agent's side of the verbs shim: programs find its process there, and what it tells is checked and reported."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from asynchronous import asynchronous

from cwdp.agent.config import VerbsConfig
from cwdp.agent.programs import listening
from cwdp.agent.programs.programs import program
from cwdp.agent.verbs import keeper as keeper_module
from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.agent.verbs.orders import VerbsPathChange, VerbsQp, VerbsSource
from cwdp.agent.verbs.owners import Owners
from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.agent.verbs.reports import verbs_reports
from cwdp.agent.verbs.sources import Sent, sent, sources
from cwdp.errors import RdmaError
from cwdp.rdma.netlink import QueuePair
from cwdp.shared.bus.messages import ACTUATORS, Spread, SteerQp
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import VERBS_ROW, shown_address
from tools.shim.client import FakeShim, ports

THERE = "10.0.1.1"
DST = address_gid(THERE)
SPREADS = [Spread(nic="nic0", dst_addr=THERE, sports=[50_001, 50_002])]


def qp(number: int, **changes: object) -> VerbsQp:
    given = VerbsQp(number, 40, "mlx5_0", number, 3, "nic0", THERE, 900 + number, 50_001, True, "mlx5dv", 0)
    return given._replace(**changes)  # type: ignore[arg-type]


async def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come to that"
        await asyncio.sleep(0.01)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One NIC, and a kernel without a list of queue pairs."""
    made = [VerbsSource("nic0", "mlx5_0", 1, 3, "::ffff:10.0.0.1")]
    monkeypatch.setattr(keeper_module, "sources", lambda _nics: made)
    monkeypatch.setattr(Owners, "look", lambda _self: asyncio.sleep(0))


@asynchronous
async def test_the_first_program_finds_a_table_and_is_served(tmp_path: Path, found: None) -> None:
    keeper = VerbsKeeper(VerbsConfig(socket=str(tmp_path / "verbs.sock")), ["nic0"], ["nic0"])
    keeper.order(SPREADS, [SteerQp(nic="nic0", dst_addr=THERE, qpn=1_000_007, sport=50_002)])
    running = asyncio.create_task(keeper.run())
    await until(lambda: keeper.counters["verbs_tables"])
    shim = FakeShim(tmp_path / "verbs.sock")
    await until(lambda: (shim.read(), shim.tables)[1])
    assert ports(shim.tables[0]) == {(address_gid("10.0.0.1"), DST): [50_001, 50_002]}
    shim.connect_qp(7, DST, 50_001)
    await until(lambda: (shim.read(), shim.orders)[1])
    (order,) = shim.take_orders()
    assert (order.qpn, order.sport) == (7, 50_002)
    shim.answer(order)
    await until(lambda: [one.sport for one in keeper.queue_pairs] == [50_002])
    assert keeper.queue_pairs[0].pid == os.getpid()
    keeper.tell_down("nic0", [(THERE, 50_002)])
    await until(lambda: (shim.read(), shim.orders)[1])
    changes = []
    await until(lambda: changes.extend(keeper.take_path_changes()) or changes)
    assert changes == [VerbsPathChange("nic0", THERE, 50_002, is_down=True, queue_pairs=1)]
    assert "verbs_queue_pairs" not in keeper.counters
    assert keeper.ports == {"nic0": ("mlx5_0", 1)}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert keeper.queue_pairs == []
    shim.close()


@asynchronous
async def test_what_programs_tell_while_the_agent_starts_is_of_its_nics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: None
) -> None:
    path, made, may_be_found = tmp_path / "verbs.sock", keeper_module.sources, threading.Event()

    def late(nics: Collection[str]) -> list[VerbsSource]:
        may_be_found.wait(20.0)
        return made(nics)

    monkeypatch.setattr(keeper_module, "sources", late)
    keeper = VerbsKeeper(VerbsConfig(socket=str(path)), ["nic0"], ["nic0"])
    running = asyncio.create_task(keeper.run())
    await until(path.exists)
    await until(lambda: path.stat().st_mode & 0o777 == 0o666)
    shim = FakeShim(path)
    shim.connect_qp(7, DST, 50_001)
    may_be_found.set()
    await until(lambda: keeper.queue_pairs)
    await until(lambda: keeper.counters["verbs_tables"])
    assert keeper.counters["verbs_queue_pairs_elsewhere"] == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shim.close()


@asynchronous
async def test_a_device_that_goes_while_it_is_read_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def going(_nics: object) -> list[VerbsSource]:
        raise OSError("it is gone")

    monkeypatch.setattr(keeper_module, "sources", going)
    keeper = VerbsKeeper(VerbsConfig(socket=str(tmp_path / "verbs.sock")), ["nic0"], ["nic0"])
    running = asyncio.create_task(keeper.run())
    await until((tmp_path / "verbs.sock").exists)
    shim = FakeShim(tmp_path / "verbs.sock")
    await until(lambda: (shim.read(), shim.tables)[1])
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shim.close()


@asynchronous
async def test_a_socket_that_another_agent_has_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.01)
    path = tmp_path / "verbs.sock"
    other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.bind(str(path))
    other.listen()
    keeper = VerbsKeeper(VerbsConfig(socket=str(path)), ["nic0"], ["nic0"])
    running = asyncio.create_task(keeper.run())
    await until(lambda: keeper.counters["verbs_unusable"] > 1)
    other.close()
    await until(lambda: path.stat().st_mode & 0o777 == 0o666)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def listed(device: str, lqpn: int, pid: int | None) -> QueuePair:
    return QueuePair(device, 1, lqpn, None, "RC", "RTS", None, None, None, pid, None)


@asynchronous
async def test_what_the_kernel_says_is_anothers_is_not_told_as_a_programs() -> None:
    kernel = [listed("mlx5_0", 1, 40), listed("mlx5_0", 2, 41), listed("mlx5_0", 3, None)]
    owners = Owners(lambda: kernel)
    those = [qp(number) for number in (1, 2, 3, 4)]
    assert all(owners.admit(one) for one in those)
    await owners.look()
    assert [owners.admit(one) for one in those] == [True, False, True, False]
    assert owners.admit(qp(5))
    assert owners.counters["verbs_others_queue_pairs"] == 2


@asynchronous
async def test_where_the_kernel_has_no_list_nothing_is_gainsaid() -> None:
    def none() -> list[QueuePair]:
        raise RdmaError("this kernel has no RDMA")

    owners = Owners(none)
    owners.admit(qp(1))
    await owners.look()
    assert owners.admit(qp(1))


def test_queue_pairs_are_reported_with_what_moves_them() -> None:
    those = [
        qp(1), qp(2, actuator="create_only", sport=None, by_table=False), qp(3, nic="nic1", actuator="bnxt"),
        qp(4, nic="tc0", refused=95),
    ]  # fmt: skip
    (report,) = verbs_reports("h1", 5, those, by_tc=["tc0"], drains=True, monotonic_ns=7)
    rows = {part.nic: rows_of(part.rows, VERBS_ROW) for part in report.nics}
    told = {
        nic: [(int(r["lqpn"]), int(r["sport"]), ACTUATORS[r["actuator"]], int(r["flags"])) for r in rows[nic]]
        for nic in rows
    }
    assert told == {
        "nic0": [(1, 50_001, "mlx5dv", 1), (2, 0, "sqd", 0)],
        "nic1": [(3, 50_001, "bnxt", 1)],
        "tc0": [(4, 50_001, "tc", 3)],
    }
    assert (shown_address(rows["nic0"][0]["addr"].tobytes()), int(rows["nic0"][0]["qpn"])) == (THERE, 901)
    assert (report.number, report.part, report.parts, report.monotonic_ns) == (5, 0, 1, 7)


def test_many_queue_pairs_are_reported_in_parts_and_none_in_one() -> None:
    reports = list(
        verbs_reports("h1", 1, [qp(n) for n in range(20_000)], by_tc=[], drains=False, monotonic_ns=7)
    )
    assert [(report.part, report.parts) for report in reports] == [(0, 3), (1, 3), (2, 3)]
    assert sum(len(rows_of(report.nics[0].rows, VERBS_ROW)) for report in reports) == 20_000
    (none,) = verbs_reports("h1", 1, [], by_tc=[], drains=False, monotonic_ns=7)
    assert none.nics == []


def test_a_program_is_named_with_its_cgroup(tmp_path: Path) -> None:
    (tmp_path / "40").mkdir()
    (tmp_path / "40" / "comm").write_text("python3\n")
    (tmp_path / "40" / "cgroup").write_text("1:cpuset:/slurm/uid_7/job_4711/step_0\n0::/kubepods/pod1\n")
    found = program(40, "PBS_JOBID=7", tmp_path)
    assert (found.name, found.cgroup, found.job) == ("python3", "/kubepods/pod1", "slurm:4711")
    gone = program(41, "PBS_JOBID=7", tmp_path)
    assert (gone.name, gone.cgroup, gone.job) == ("", "", "pbs:7")


def test_what_a_nic_has_sent_is_read_from_its_device_or_the_interface(tmp_path: Path) -> None:
    device, net = tmp_path / "infiniband", tmp_path / "net"
    counters, statistics = device / "mlx5_0" / "ports" / "1" / "counters", net / "nic0" / "statistics"
    for folder, files in (
        (statistics, {"tx_bytes": 7, "tx_packets": 2}),
        (counters, {"port_xmit_data": 5, "port_xmit_packets": 3}),
    ):
        assert sent("nic0", "mlx5_0", 1, device, net) in (None, Sent(2, 7))
        folder.mkdir(parents=True)
        for name, value in files.items():
            (folder / name).write_text(f"{value}\n")
    assert sent("nic0", "mlx5_0", 1, device, net) == Sent(3, 20)


def test_sources_are_the_routable_gids_of_our_nics(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "gid_attrs" / "ndevs").mkdir()
    (port / "gids").mkdir()
    gids = [
        ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "nic0"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "nic0"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "nic0"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2", "other"),
    ]
    for index, (gid, kind, netdev) in enumerate(gids):
        (port / "gids" / str(index)).write_text(gid)
        (port / "gid_attrs" / "types" / str(index)).write_text(kind)
        (port / "gid_attrs" / "ndevs" / str(index)).write_text(netdev)
    assert sources(["nic0"], tmp_path) == [VerbsSource("nic0", "mlx5_0", 1, 2, "::ffff:10.0.0.1")]
