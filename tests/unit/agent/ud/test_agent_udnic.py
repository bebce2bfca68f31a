"""A NIC that probes by UD queue pairs, as the agent sees it: orders, words, statistics, and a clock fit from user space."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from agent_fakes import address, link

from cwdp.agent import config
from cwdp.agent.clock.edges import HostEdges
from cwdp.agent.clock.hostclock import LocalClock
from cwdp.agent.clock.window import weigh
from cwdp.agent.config import InterfaceConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.probing.pathstats import path_stats
from cwdp.agent.ud import nic as udnic
from cwdp.agent.ud.keeper import SILENT_NS, UdKeeper
from cwdp.agent.ud.nic import STAMP_NOISE_NS, UdNic, read_rows
from cwdp.agent.ud.orders import Fate, Row, UdOrder, UdWord
from cwdp.dataplane.loading.loader import Settings
from cwdp.errors import RdmaError
from cwdp.rdma import netlink
from cwdp.rdma.port import RdmaPort
from cwdp.rdma.udwire import UNSYNCED_BOUND_NS
from cwdp.shared.bus.messages import ProbeEdge, UdAddress
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS
from cwdp.shared.identity.probe_keys import KeyFile, read_keys

PORT = RdmaPort("mlx5_0", 1, 3, "::ffff:10.0.0.1")
ADDRESS = UdAddress(PORT.gid, 77)
PEER = UdAddress("::ffff:10.0.0.2", 88, (50_000, 50_001))
KEY = "ab" * 16
US = 1_000


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    path = tmp_path / "keys.toml"
    path.touch(mode=0o600)
    path.write_text(f'send = 1\n[[key]]\nid = 1\nsecret = "{KEY}"\n')
    return read_keys(path)


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> UdNic:
    monkeypatch.setattr(udnic, "find_port", lambda _ifname, _choice: PORT)
    monkeypatch.setattr(netlink, "drivers", lambda: {"mlx5_0": "mlx5"})
    monkeypatch.setattr(UdKeeper, "is_running", True)
    links = LinkTable(lambda _: None)
    links.renew([link("eth1"), address("10.0.0.1"), address("fd00::1")])
    clock = LocalClock(Settings())
    clock.take_up([])
    test_clock = config.TestClockConfig("h1.npz")
    return UdNic("a", "eth1", InterfaceConfig(transport="ud"), test_clock, clock=clock, links=links)


def edge(dst: str = "b/eth1", dst_ud: UdAddress | None = PEER, pairs_per_s: float = 20.0) -> ProbeEdge:
    return ProbeEdge(
        src="a/eth1",
        dst=dst,
        src_addr="10.0.0.1",
        dst_addr="10.0.0.2",
        sports=[60_000, 60_001],
        reply_sports=[50_000, 50_001],
        pairs_per_s=pairs_per_s,
        dst_ud=dst_ud,
    )


def say(nic: UdNic, **changes: Any) -> None:
    word = UdWord(address=ADDRESS, trouble="", version=_ordered(nic).version, rows=[], counters={"sent": 5})
    line = msgspec.json.encode(msgspec.structs.replace(word, **changes))
    nic.keeper._current = Counter(nic.keeper._hear(line))


def _ordered(nic: UdNic) -> UdOrder:
    return msgspec.json.decode(nic.keeper._orders(), type=UdOrder)


def answered(path: int, t1: int, owd_ns: int = 5 * US, bound_ns: int = 90) -> Row:
    stamps = (t1, t1 + owd_ns, t1 + 2 * owd_ns, t1 + 3 * owd_ns)
    return (path, Fate.ANSWERED, *stamps, owd_ns, owd_ns, bound_ns)


def lost(path: int) -> Row:
    return (path, Fate.LOST, 0, 0, 0, 0, 0, 0, UNSYNCED_BOUND_NS)


def test_the_order_has_all_that_is_known(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    before = _ordered(nic)
    assert (before.device, before.port, before.gid_index, before.driver) == ("mlx5_0", 1, 3, "mlx5")
    assert (before.keys, before.send_key) == ({1: KEY}, 1)
    assert before.test_clock == "h1.npz"
    assert before.ahead_of_raw_ns == 0
    nic.probe([edge(), edge("c/eth1", pairs_per_s=40.0)], 1)
    order = _ordered(nic)
    assert order.version != before.version
    assert [(path.peer, path.sport, path.reply_sport) for path in order.paths[:2]] == [
        (PEER, 60_000, 50_000),
        (PEER, 60_001, 50_001),
    ]
    assert order.pairs_per_s == 60.0
    assert sorted(order.turns) == [0, 1, 2, 2, 3, 3]


def test_an_edge_to_a_nic_with_a_dataplane_is_refused_and_counted(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    nic.probe([edge(dst_ud=None)], 1)
    assert (_ordered(nic).paths, _ordered(nic).turns) == ([], [])
    assert nic.totals()["agent.eth1.ud_edges_refused"] == 1


def test_it_is_told_with_the_address_of_its_gid_alone(nic: UdNic, keys: KeyFile) -> None:
    absent = nic.describe()
    assert (absent.transport, absent.mode, absent.ud) == ("ud", "absent", None)
    assert (absent.ipv4, absent.ipv6, absent.carrier) == ("10.0.0.1", "fd00::1", True)
    nic.ensure(keys)
    say(nic)
    present = nic.describe()
    assert (present.ipv4, present.ipv6, present.ud) == ("10.0.0.1", None, ADDRESS)
    say(nic, address=UdAddress("fd00::1", 5))
    assert (nic.describe().ipv4, nic.describe().ipv6) == (None, "fd00::1")


def test_new_queue_pairs_are_told_once_and_trouble_each_time(nic: UdNic, keys: KeyFile) -> None:
    assert not nic.ensure(keys)
    say(nic)
    assert [nic.ensure(keys), nic.ensure(keys)] == [True, False]
    for _ in range(2):
        say(nic, address=None, trouble="the RDMA device mlx5_0 has gone")
        with pytest.raises(RdmaError, match="has gone"):
            nic.ensure(keys)
    say(nic)
    assert nic.ensure(keys)


def test_an_ipv4_address_that_comes_later_is_taken(
    nic: UdNic, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its peers use it, if they have one."""
    there = [RdmaPort("mlx5_0", 1, 5, "fd00::1")]
    monkeypatch.setattr(udnic, "find_port", lambda _ifname, _choice: there[-1])
    nic._links.take(address("10.0.0.1", new=False))
    nic.ensure(keys)
    there.append(PORT)
    nic.ensure(keys)
    assert _ordered(nic).gid_index == 5
    nic._links.take(address("10.0.0.1"))
    nic.ensure(keys)
    assert _ordered(nic).gid_index == 3


def test_what_was_said_long_ago_counts_no_more(
    nic: UdNic, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic.ensure(keys)
    say(nic)
    later_ns = time.monotonic_ns() + SILENT_NS
    monkeypatch.setattr("time.monotonic_ns", lambda: later_ns)
    assert nic.describe().ud is None


def test_counters_have_a_prefix_of_their_own(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    say(nic, counters={"sent": 7, "lost": 0})
    totals = nic.totals()
    assert (totals["agent.eth1.ud_sent"], totals["agent.eth1.ud_lost"]) == (7, 0)
    assert totals["agent.eth1.ud_restarts"] == 0


def test_results_become_statistics_of_paths(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    nic.probe([edge()], 1)
    say(nic, rows=[lost(0), answered(0, 9_000), answered(1, 1_000), answered(1, 41_000, 60 * US, 100)])
    drained = nic.drain(0)
    assert drained is not None
    assert nic.drain(0) is None
    assert nic.schedule is not None
    first, second = path_stats(nic.schedule.paths, [drained])
    assert (first.sent, first.lost, second.sent, second.lost) == (2, 1, 2, 0)
    assert (second.fwd_min_ns, second.fwd_p99_ns, second.bound_ns) == (5 * US, 60 * US, 100)
    assert second.rtt_min_ns == 10 * US
    assert second.queued == 0, "stamps from user space tell no queue of microseconds"


def test_results_of_an_earlier_schedule_are_passed_over(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    nic.probe([edge()], 1)
    say(nic, rows=[lost(1), lost(1)])
    nic.probe([edge(pairs_per_s=1.0)], 1)
    say(nic, version=_ordered(nic).version - 1, rows=[lost(1), lost(1)])
    assert nic.drain(0) is None


def test_windows_tell_losses_and_no_delays(nic: UdNic, keys: KeyFile) -> None:
    nic.ensure(keys)
    nic.probe([edge()], 1)
    say(nic, rows=[answered(0, WINDOW_NS), answered(0, WINDOW_NS + 9), answered(1, WINDOW_NS), lost(1)])
    drained = nic.drain(0)
    assert drained is not None
    nic.add_windows(drained, None)
    assert len(nic.take_windows(100 * WINDOW_NS, 0, sums=False)) == 0
    assert nic.counters["windows_unsynced"] == 4
    nic.add_windows(drained, 0)
    rows = nic.take_windows(100 * WINDOW_NS, 0, sums=False)
    assert rows["sent"].sum() == 4
    assert rows["lost"].sum() == 1
    assert set(rows["fwd_min_ns"]) == {NO_DELAY_NS}
    assert drained.slots["bound_ns"][0] == 90


@pytest.mark.parametrize("seed", range(8))
def test_clocks_are_fitted_from_stamps_of_user_space(seed: int) -> None:
    """Every stamp is late by 4 us and something exponential; the error is far below that, and sigma says so."""
    rng = np.random.default_rng(seed)
    offset_ns, drift = int(rng.integers(-(10**10), 10**10)), rng.uniform(-4e-5, 4e-5)
    edges = HostEdges()
    edges.assign([("a/eth1", "b/eth1")])
    fit = None
    for step in range(32):
        begun_ns = 10**12 + step * 250_000_000
        left = np.sort(begun_ns + rng.integers(0, 250_000_000, 5)).repeat(2) + np.tile([0, 60 * US], 5)
        rows: list[Row] = []
        for t1 in left.tolist():
            late = (4 * US + rng.exponential(10 * US, 4)).round().astype(int)
            there = t1 + 3 * US + int(late[0] + late[1])
            turned = there + 50 * US
            t2, t3 = (when + offset_ns + round(drift * (when - 10**12)) for when in (there, turned))
            t4 = turned + 3 * US + int(late[2] + late[3])
            rows.append((0, Fate.ANSWERED, t1, t2, t3, t4, 0, 0, UNSYNCED_BOUND_NS))
        now_ns = begun_ns + 250_000_000
        edges.add(now_ns, weigh(read_rows(rows), np.zeros(1, np.intp)))
        (fit,) = edges.fit(now_ns)
    assert fit is not None
    truth_ns = offset_ns + drift * (fit.ref_local_ns - 10**12)
    error_ns = fit.offset_base_ns + fit.offset_ns - truth_ns
    assert abs(error_ns) < 6 * US
    assert abs(error_ns) < 5 * fit.sigma_offset_ns
    assert not fit.torn


def test_the_noise_of_stamps_goes_with_what_is_drained() -> None:
    assert read_rows([lost(0), lost(0)]).noise_ns == STAMP_NOISE_NS


def test_the_process_itself_says_what_is_missing(
    nic: UdNic, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no such device anywhere: the process starts, says so, and ends with the agent."""
    monkeypatch.undo()
    keeper = UdKeeper()

    async def live() -> str:
        job = asyncio.create_task(keeper.run())
        keeper.order(UdOrder(device="none0", port=1, gid_index=0, driver=None, keys={1: KEY}, send_key=1))
        for _ in range(500):
            await asyncio.sleep(0.02)
            if keeper.trouble:
                break
        trouble = keeper.trouble
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        return trouble

    assert asyncio.run(live()) == "none0 port 1 has no RoCE v2 GID of index 0"
    assert keeper.counters["open_failed"] > 0
    assert not keeper.is_running
