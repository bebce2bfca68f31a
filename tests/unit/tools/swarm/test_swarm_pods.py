"""A swarm of several pods: who says what on which subject, and what is counted for whom."""

import numpy as np

from cwdp.shared.bus.messages import ClockLine, ClockUpdate, Desired, Hello, TraceOrder
from manager.identity.authority import Authority
from tools.swarm.fabric import Size
from tools.swarm.swarm import Swarm, pod_names
from tools.swarm.timelines import Clocks, Timelines

SIZE = Size(nics=64, pods=2)


def test_the_first_pod_is_the_one_that_an_undivided_fleet_is() -> None:
    assert pod_names(1) == ["main"]
    assert pod_names(3) == ["main", "p2", "p3"]
    assert min(pod_names(16)) == "main"


def test_hosts_are_divided_evenly_and_counted_by_pod() -> None:
    swarm = Swarm("nats://127.0.0.1:1", Authority.new(), SIZE)
    assert [host.pod for host in swarm.hosts] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [host.name for host in swarm.pod_hosts(1)] == ["h4", "h5", "h6", "h7"]
    hello = swarm.hosts[5].hello()
    assert isinstance(hello, Hello)
    size = len(swarm._seal.encode("hello", hello))
    assert swarm.said.tolist() == [[0, 0, 0, 0], [1, size, 0, 0]]


def line(offset_base_ns: int = 0) -> ClockLine:
    return ClockLine(
        ref_local_ns=0,
        offset_base_ns=offset_base_ns,
        offset_ns=0.0,
        drift=0.0,
        bound_ns=10.0,
        bound_drift=0.0,
        state="synced",
    )


def test_pods_have_timelines_of_their_own() -> None:
    clocks = Clocks(8, seed=1)
    timelines = Timelines(clocks, 2)
    now_ns = clocks._origin_ns + 10**9
    assert np.isnan(timelines.ahead_ns(0, now_ns)).tolist() == [False, True]
    own, other = (clocks.local_ns(host, now_ns) for host in (0, 4))
    timelines.hear(0, 0, line())
    timelines.hear(1, 4, line(offset_base_ns=own - other + 700))
    assert timelines.ahead_ns(0, now_ns).tolist() == [0, 700]
    assert timelines.ahead_ns(1, now_ns).tolist() == [-700, 0]


def test_a_host_that_is_told_its_clock_tells_of_its_pods_timeline() -> None:
    swarm = Swarm("nats://127.0.0.1:1", Authority.new(), SIZE)
    timelines = swarm.hosts[0].world.timelines
    for host in (0, 4):
        swarm.hosts[host].take_clock(
            ClockUpdate(host=f"h{host}", timeline="t", seq=1, line=line(), priors=[])
        )
    assert not np.isnan(timelines.ahead_ns(0, 0)).any()


def test_a_host_traces_anew_what_is_ordered_again_and_all_once_it_is_back() -> None:
    host = Swarm("nats://127.0.0.1:1", Authority.new(), SIZE).hosts[0]
    order = TraceOrder(nic="nic0", dst_addr="10.0.0.33", sports=[50_000, 50_001])

    def traced(*traces: TraceOrder) -> list[int]:
        version = host.told.version + 1 if host.told else 1
        host.take_document(Desired(host=host.name, version=version, probes=[], traces=list(traces)))
        report = host.traces(64)
        return [] if report is None else [trace.sport for trace in report.traces]

    assert traced(order) == [50_000, 50_001]
    assert traced(order) == traced() == []
    assert traced(order) == [50_000, 50_001]
    host.come_back()
    assert traced(order) == [50_000, 50_001]


def test_a_host_hears_of_another_leader_once_and_tells_it_all_paths() -> None:
    host = Swarm("nats://127.0.0.1:1", Authority.new(), SIZE).hosts[0]
    order = TraceOrder(nic="nic0", dst_addr="10.0.0.33", sports=[50_000])

    def document(version: int, epoch: int) -> bool:
        told = Desired(host=host.name, version=version, epoch=epoch, probes=[], traces=[order])
        return host.take_document(told)

    update = ClockUpdate(host=host.name, timeline="t", seq=1, epoch=3, line=line(), priors=[])
    assert document(1, 2)
    assert host.traces(64) is not None
    assert not document(2, 2)
    assert host.traces(64) is None
    assert document(3, 3)
    assert not host.take_clock(update)
    assert host.traces(64) is not None
