"""Two pods of a swarm, each with its leader: what crosses between them has delays, and its queue pairs a backup."""

import numpy as np
import pytest
from swarm_of_pods import LeadingPod, SwarmOfPods

from cwdp.shared.bus.messages import SteerQp
from cwdp.shared.bus.records import WINDOW_NS
from manager.fabric.routes import PathName
from manager.fabric.traces import FORGET_UNORDERED_S
from manager.paths.windows import Window
from tools.swarm.fabric import NO_LINK, Size, nic_of
from tools.swarm.measured import BOUND_NS
from tools.swarm.probes import HOP_NS

SIZE = Size(
    nics=32,
    pods=2,
    nics_per_host=2,
    hosts_per_leaf=4,
    spines=4,
    cores=4,
    queue_pairs=4,
    peers=2,
    job_hosts=4,
)
RUNS_S = 14.0


@pytest.fixture(scope="module")
def swarm() -> SwarmOfPods:
    with pytest.MonkeyPatch.context() as monkeypatch:
        swarm = SwarmOfPods(SIZE, monkeypatch)
        swarm.run(RUNS_S)
    return swarm


def _nic(name: str) -> int:
    host, _, ifname = name.partition("/")
    return int(host[1:]) * SIZE.nics_per_host + int(ifname[3:])


def test_what_is_in_use_between_pods_stays_known_though_it_is_traced_once() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        swarm = SwarmOfPods(SIZE, monkeypatch)
        swarm.run(RUNS_S)
        swarm.now_s += FORGET_UNORDERED_S
        for pod in swarm.pods:
            before = len(pod.state.fabric.store)
            pod.state.discovery.learn(swarm.now_s)
            replies = {
                PathName(edge.dst, edge.src_addr, port)
                for host in pod.hosts.values()
                if host.told is not None
                for edge in host.told.probes
                for port in edge.reply_sports
            }
            assert len(pod.state.fabric.store) < before
            known = pod.state.fabric.routes.paths
            assert replies <= known.keys()


def test_leaders_know_how_far_their_timelines_are_apart(swarm: SwarmOfPods) -> None:
    for number, pod in enumerate(swarm.pods):
        (apart,) = pod.state.members.elsewhere.apart.values()
        truth_ns = swarm.ahead_ns(number)[1 - number]
        shown_ns = swarm.shown_ns(number)
        ahead_ns, bound_ns = apart.during(np.array(shown_ns), np.array(0))
        assert abs(ahead_ns - truth_ns) <= min(bound_ns, 20)
        assert bound_ns < 100
        assert abs(truth_ns) > 10**8


def test_one_way_delays_between_pods_are_those_of_the_paths_within_their_bounds(swarm: SwarmOfPods) -> None:
    for pod in swarm.pods:
        paths = pod.state.owd.snapshot(swarm.now_s)
        far = [i for i, key in enumerate(paths.keys) if key[1].partition("/")[0] not in pod.hosts]
        assert len(far) > 50
        for i in far:
            src, dst, sport, reply_sport = paths.keys[i]
            for way, ends in (("fwd", (src, dst, sport)), ("rev", (dst, src, reply_sport))):
                truth_ns = _least_ns(swarm, src, dst, ends)
                assert abs(paths.delays[f"{way}_min_ns"][i] - truth_ns) <= paths.bound_ns[i]
            assert paths.bound_ns[i] > BOUND_NS


def _least_ns(swarm: SwarmOfPods, src: str, dst: str, way: tuple[str, str, int]) -> float:
    """What a swarm's host tells of a path's least delay on one timeline; lengths are those of the way there."""
    links = swarm.fabric.path(*(np.array([each]) for each in (_nic(way[0]), _nic(way[1]), way[2])))[0]
    hops = np.count_nonzero(links != NO_LINK)
    queue_ns = swarm.fabric.queue_ns[links].sum()
    return float(HOP_NS * hops + 37 * (_nic(src) % 5 + _nic(dst) % 7) + 0.3 * queue_ns)


def test_queues_are_told_from_rows_between_pods_too(swarm: SwarmOfPods) -> None:
    for number, pod in enumerate(swarm.pods):
        store = pod.state.watch.windows
        window: Window = store.window(swarm.shown_ns(number) // WINDOW_NS - 5)
        names = [name for name in store.names if name is not None]
        far = [i for i, name in enumerate(names) if nic_of(name.dst_addr) // 16 != number]
        told = [i for i in far if window.sent[i] > window.lost[i]]
        assert len(told) > 10
        assert not np.isnan(window.mean_ns[:, told]).any()
        assert not np.isnan(window.least_ns[:, told]).any()


def _between(swarm: SwarmOfPods, pod: LeadingPod) -> dict[tuple[str, int], tuple[int, int]]:
    """NIC, destination QPN of the queue pairs that lead out of a pod: their source and destination NICs."""
    traffic, found = swarm.traffic, {}
    each = zip(traffic.src.tolist(), traffic.dst.tolist(), traffic.told_qpn.tolist(), strict=True)
    for src, dst, qpn in each:
        if swarm.hosts[src // 2].name in pod.hosts and swarm.hosts[dst // 2].name not in pod.hosts:
            found[f"h{src // 2}/nic{src % 2}", qpn] = src, dst
    return found


def test_queue_pairs_between_pods_that_nobody_has_steered_get_a_backup_that_shares_no_link(
    swarm: SwarmOfPods,
) -> None:
    for pod in swarm.pods:
        assert not pod.state.steering.all()
        told: dict[tuple[str, int], SteerQp] = {
            (f"{name}/{one.nic}", one.qpn): one
            for name, host in pod.hosts.items()
            if host.told is not None
            for one in host.told.steer
        }
        between = _between(swarm, pod)
        assert len(between) == SIZE.nics_per_host * SIZE.queue_pairs // SIZE.peers
        for key, (src, dst) in between.items():
            steered = told[key]
            assert nic_of(steered.dst_addr) == dst
            assert steered.backup_sport is not None
            ports = np.array([steered.sport, steered.backup_sport])
            links = swarm.fabric.path(np.full(2, src), np.full(2, dst), ports)[:, 1:-1]
            assert not set(links[0]) & set(links[1])


def test_a_leader_that_waits_knows_nothing_of_other_timelines(swarm: SwarmOfPods) -> None:
    state = swarm.pods[0].state
    assert state.members.elsewhere.apart
    state.stand_by()
    assert not state.members.elsewhere.apart
    assert not state.timelines.seen()
