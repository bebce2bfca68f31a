"""What hosts of a swarm say in one turn, worked out together, is what each would say alone; what is kept is what would be made anew."""

import numpy as np
import pytest

from cwdp.shared.bus.messages import ClockLine, ClockUpdate, Desired, ProbeEdge, Report, SteerQp, WindowReport
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import BURST_ROW
from manager.identity.authority import Authority
from tools.swarm.fabric import Size, SwarmFabric, nic_address
from tools.swarm.hosts import SwarmHost, World
from tools.swarm.iterations import Iterations
from tools.swarm.swarm import Swarm
from tools.swarm.timelines import Clocks, Timelines
from tools.swarm.traffic import LASTS_NS, PACKET_BYTES, PERIOD_NS, Traffic
from tools.swarm.turns import reports, windows

SIZE, TIERS = Size(nics=64), Size(nics=64, pods=2)
TICK_NS = 500_000_000


def _document(host: int, hosts: int, interval_s: float) -> Desired:
    """To others of its rail; the host 0 is told nothing to probe."""
    probes = [
        ProbeEdge(
            src=f"h{host}/nic{rail}",
            dst=f"h{peer}/nic{rail}",
            src_addr=nic_address(8 * host + rail),
            dst_addr=nic_address(8 * peer + rail),
            sports=[0xC000 + 7 * host + rail, 0xC100 + peer],
            reply_sports=[0xD000 + peer, 0xD100 + host],
            pairs_per_s=30.0 if rail % 2 else 1.7,
        )
        for rail in range(8)
        for peer in ((host + 1) % hosts, (host + 3) % hosts)
    ]
    return Desired(host=f"h{host}", version=1, probes=probes if host else [], report_interval_s=interval_s)


def _hosts(size: Size, interval_s: float) -> tuple[World, list[SwarmHost]]:
    fabric, clocks = SwarmFabric(size), Clocks(size.hosts, 1)
    clocks._origin_ns = 0
    world = World(
        fabric, Traffic(fabric, 1), clocks, Timelines(clocks, size.pods), Iterations(size.hosts, 1), 1
    )
    hosts = [SwarmHost(i, world) for i in range(size.hosts)]
    for i, host in enumerate(hosts):
        line = ClockLine(
            ref_local_ns=0,
            offset_base_ns=-clocks.local_ns(i, 0) + 10**12 + 5_000_000 * (i % 3 == 2),
            offset_ns=0.0,
            drift=0.0,
            bound_ns=10.0,
            bound_drift=0.0,
            state="synced",
        )
        host.take_clock(ClockUpdate(host=host.name, timeline="t", seq=1, line=line, priors=[]))
        host.take_document(_document(i, size.hosts, interval_s))
    return world, hosts


def _said(size: Size, interval_s: float, *, together: bool) -> list[tuple[str, WindowReport | Report]]:
    """Over some turns in which links lose and hosts are behind others, by host."""
    world, hosts = _hosts(size, interval_s)
    world.fabric.queue_ns[8 : 8 + 20] = 30_000.0
    cable = world.fabric.leaf_cable(3, 2)
    groups = [hosts] if together else [[host] for host in hosts]
    said: list[tuple[str, WindowReport | Report]] = []
    for turn in range(8):
        world.fabric.loss[cable.links] = (0.0, 0.5, 1.0)[turn % 3]
        now_ns = 10**9 + turn * TICK_NS
        for group in groups:
            there = [host for host in group if turn % 4 != 2 or host.number % 3]
            said += [(host.name, each) for host, each in windows(there, now_ns)]
            said += [
                (host.name, each)
                for host, each in reports(there, now_ns, with_fits=True, in_full=True, with_counters=False)
            ]
    return sorted(said, key=lambda each: each[0])


@pytest.mark.parametrize("interval_s", [0.25, 1.0])
@pytest.mark.parametrize("size", [SIZE, TIERS], ids=["one pod", "two pods"])
def test_many_hosts_say_together_what_each_says_alone(size: Size, interval_s: float) -> None:
    """Of equal seeds, whoever of them loses probes, is behind, or probes nothing."""
    together = _said(size, interval_s, together=True)
    assert together == _said(size, interval_s, together=False)
    told = {type(each) for _, each in together}
    assert told == {WindowReport, Report}


def _plain_bursts(traffic: Traffic, nic: int, starts_ns: np.ndarray) -> list[np.ndarray]:
    """One row a burst and a queue pair, in the order in which queue pairs are told."""
    sent, came = np.flatnonzero(traffic.src == nic), np.flatnonzero(traffic.dst == nic)
    flows = np.concatenate([sent, came])
    counted = (traffic.rate_bps[flows] / 8 * PERIOD_NS / 1e9).astype(np.uint64)
    return [
        np.tile(traffic.told_qpn[flows], len(starts_ns)),
        starts_ns.ravel(),
        (starts_ns + LASTS_NS).ravel(),
        np.tile(counted, len(starts_ns)),
        np.tile(counted // PACKET_BYTES, len(starts_ns)),
    ]


def test_bursts_are_told_as_rates_are_now_and_as_many_as_have_begun() -> None:
    traffic, draw = Traffic(SwarmFabric(SIZE), 1), np.random.default_rng(2)
    nics = range(8, 16)
    mine = np.flatnonzero(traffic.src == 9)
    port = int(traffic.sport[mine[0]])
    for turn, sport in enumerate((port, port, 0xFFFE, port)):
        to, qpn = nic_address(int(traffic.dst[mine[0]])), int(traffic.told_qpn[mine[0]])
        traffic.steer(1, [SteerQp(nic="nic1", dst_addr=to, qpn=qpn, sport=sport)])
        starts_ns = draw.integers(0, 10**15, (1 + turn % 2, len(traffic.jobs_of(nics))))
        begin = 0
        for nic, said in zip(nics, traffic.bursts(nics, starts_ns), strict=True):
            end = begin + len(traffic.jobs_of(range(nic, nic + 1)))
            rows = rows_of(said, BURST_ROW)
            names = ("qpn", "start_ns", "end_ns", "bytes", "packets")
            for name, plain in zip(names, _plain_bursts(traffic, nic, starts_ns[:, begin:end]), strict=True):
                assert rows[name].tolist() == plain.tolist()
            begin = end
        assert begin == starts_ns.shape[1]


def test_an_iteration_begins_when_it_did_whoever_asks_and_however_late() -> None:
    jobs = np.arange(8)
    kept, anew = Iterations(8, 1), Iterations(8, 1)
    all_ns = kept.ended(jobs, 10 * PERIOD_NS, 300 * PERIOD_NS)
    assert len(all_ns) == 290
    again_ns = kept.ended(jobs[3:5], 10 * PERIOD_NS, 300 * PERIOD_NS)
    assert again_ns.tolist() == all_ns[:, 3:5].tolist()
    assert anew.ended(jobs, 100 * PERIOD_NS, 101 * PERIOD_NS).tolist() == all_ns[90:91].tolist()


def test_clocks_show_the_same_one_by_one_and_together() -> None:
    clocks = Clocks(32, seed=3)
    for after_ns in (0, 1, 12_345_678_901, 10**14):
        now_ns = clocks._origin_ns + after_ns
        alone = [clocks.local_ns(host, now_ns) for host in range(32)]
        assert clocks.each_ns(np.arange(32), now_ns).tolist() == alone


def test_a_hello_is_packed_anew_once_it_says_something_else() -> None:
    swarm = Swarm("nats://127.0.0.1:1", Authority.new(), SIZE)
    host, seal = swarm.hosts[2], swarm._seal

    def said() -> bytes:
        data = seal.encode("hello", host.hello())
        assert data == super(type(seal), seal).encode("hello", host._new_hello(host.hello().desired_version))
        return data

    first = said()
    assert host.hello() is host.hello()
    assert said() == first
    host.take_document(Desired(host=host.name, version=4, probes=[]))
    second = said()
    host.come_back()
    assert len({first, second, said()}) == 3
    assert swarm.said[0, 0] == 4
