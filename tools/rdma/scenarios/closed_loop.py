"""The closed loop on real RDMA: two jobs collide, the manager takes them apart, a link dies under them and comes back.

Four queue pairs of `ib_write_bw`, from two hosts below one leaf to two below the other, over four spines whose links
carry one of them each. Nothing is steered by hand: agents find the paths and report what passes, the manager plans.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import CwdpError, LabError, ManagerError
from tools.lab.network import fabric
from tools.lab.topology import Topology
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed import services
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.fabric import LAB, RdmaHost, silent
from tools.rdma.testbed.programs import Transfer, started
from tools.rdma.testbed.services import Services

QUEUE_PAIRS = 2
JOBS = tuple(
    Transfer("ib_write_bw", 4, messages=5_000, size=8_192, port=port, queue_pairs=QUEUE_PAIRS, depth=2)
    for port in (18_515, 18_516)
)
"""Their windows are small, so that the queue of a link that all four share lasts a fraction of a second."""

SPINE_BPS = 2_500_000
BEST_BPS = SPINE_BPS * LAB.spines
NEAR = 0.9
"""Of the best, to go on; what the tests ask for is theirs."""

_ETHERNET_BYTES = 14
_WINDOW_S = 5.0
_DISCOVERED_S, _PLANNED_S, _HEALED_S = 240.0, 45.0, 45.0
_REPLANNED_S = 5.0
_POLL_S = 1.0


def run(hosts: list[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Go through it; what came of it is recorded as far as it went."""
    pairs = list(zip(hosts[:2], hosts[2:], strict=True))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        record = stack.enter_context(recorded(bench))
        lift = stack.enter_context(slow_spines(SPINE_BPS))
        cwdp = stack.enter_context(services.stopped(hosts, folder, bench.way_out))
        try:
            cwdp.start()
            record["discovered_s"] = _await(lambda: _knows_all(cwdp, pairs), _DISCOVERED_S)
            running = [
                stack.enter_context(started(job, *pair)) for job, pair in zip(JOBS, pairs, strict=True)
            ]
            goodput = stack.enter_context(_goodput([target for _, target in pairs]))
            _contention(cwdp, goodput, record)
            _failure(bench.counters, goodput, record)
            record["running"] = [one.is_running() for one in running]
            lift()
            record["outcomes"] = [asdict(one.finish()) for one in running]
        except CwdpError as error:
            record["error"] = str(error)
        finally:
            record["logs"] = cwdp.logs()
            with suppress(ManagerError):
                record["events"] = cwdp.ask("/v1/events")["events"]
    return record


Goodput = Callable[[], list[float]]


def _contention(cwdp: Services, goodput: Goodput, record: dict[str, Any]) -> None:
    """Under ECMP, then with the planner at work."""
    record["ecmp_bps"] = goodput()
    cwdp.plan(enabled=True)
    record["planned_s"], record["planned_bps"] = _until_near(goodput, BEST_BPS, _PLANNED_S)
    record["planner"] = cwdp.ask("/v1/manager")["planner"]


def _failure(counters: Counters, goodput: Goodput, record: dict[str, Any]) -> None:
    """The link of a spine dies silently, and comes back."""
    record["cut"] = link = f"l1-{_busiest(counters)}"
    with silent(link):
        time.sleep(_REPLANNED_S)
        record["cut_bps"] = goodput()
    record["healed_s"], record["healed_bps"] = _until_near(goodput, BEST_BPS, _HEALED_S)


def _knows_all(cwdp: Services, pairs: list[tuple[RdmaHost, RdmaHost]]) -> bool:
    """Whether the manager knows a path over each spine, for each pair of hosts."""
    with suppress(ManagerError):
        found = [cwdp.ask("/v1/path", src=source.name, dst=target.name)["pairs"] for source, target in pairs]
        return all(any(one["paths_known"] >= LAB.spines for one in each) for each in found)
    return False


def _await(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait for something; how long it took.

    Raises:
        LabError: it took too long.
    """
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > timeout_s:
            raise LabError("the agents did not find the paths in time", "see the logs in the report")
        time.sleep(_POLL_S)
    return time.monotonic() - began_s


def _until_near(goodput: Goodput, best_bps: float, timeout_s: float) -> tuple[float, list[float]]:
    """Measure until all together have most of the best, or for so long; how long it took, and the last rates."""
    began_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - began_s
        rates_bps = goodput()
        if sum(rates_bps) >= NEAR * best_bps or waited_s > timeout_s:
            return waited_s, rates_bps


def _busiest(counters: Counters) -> str:
    """The spine that sends most to the leaf of the targets."""
    before = counters.sent_to("l2")
    time.sleep(_POLL_S)
    now = counters.sent_to("l2")
    return max(now, key=lambda spine: now[spine] - before[spine])


@contextmanager
def _goodput(targets: list[RdmaHost]) -> Iterator[Goodput]:
    """What measures the rate at which frames arrive at each target over a few seconds."""
    with ExitStack() as stack:
        maps = [stack.enter_context(Maps(tree.here(target.ifname))) for target in targets]

        def measure() -> list[float]:
            before, began_s = [_received_bytes(one) for one in maps], time.monotonic()
            time.sleep(_WINDOW_S)
            now, took_s = [_received_bytes(one) for one in maps], time.monotonic() - began_s
            return [(b - a) * 8 / took_s for a, b in zip(before, now, strict=True)]

        yield measure


def _received_bytes(maps: Maps) -> int:
    pairs = maps.qps[Direction.INGRESS]
    return int(pairs["bytes"].sum() + _ETHERNET_BYTES * pairs["packets"].sum())


@contextmanager
def slow_spines(rate_bps: int) -> Iterator[Callable[[], None]]:
    """Have the spines' links carry so much; what is given lifts that."""
    topology = Topology(LAB)
    links = [link for link in topology.links.values() if link.b.node in topology.spines]
    with fabric.open_nodes(topology, topology.switches) as nodes:

        def shape(to_bps: int) -> None:
            for link in links:
                for port in (link.a, link.b):
                    fabric.shape_port(topology, nodes[port.node], link, to_bps)

        shape(rate_bps)
        try:
            yield lambda: shape(LAB.spine_rate_bps)
        finally:
            shape(LAB.spine_rate_bps)
