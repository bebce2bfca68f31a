"""Path discovery at the size of a large fleet: what taking in all traces and building routes of them costs."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from cwdp.shared.bus.messages import Trace, TraceReport
from manager.fabric.fabric import Fabric
from manager.fabric.path_counts import PathCounts

NICS_PER_LEAF = 32
FIRST_PORT = 50_000


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """One Clos of two tiers, one NIC a host, every host with some peers.

    Attributes:
        paths: that were traced.
        hear_s: taking in all reports for the first time.
        hear_again_s: taking in the same ones once more.
        build_s: routes from all of them.
        rebuild_s: routes anew, after a link died that every 64th path crossed.
        path_counts_s: counting what is known of each pair.
    """

    paths: int
    hear_s: float
    hear_again_s: float
    build_s: float
    rebuild_s: float
    path_counts_s: float


def discover(nics: int, peers: int, ports: int, spines: int, seed: int) -> DiscoveryResult:
    """Trace `ports` ports from every NIC to `peers` others, and build routes."""
    rng = random.Random(seed)
    fabric = Fabric()
    fabric.know({_address(i): f"h{i}/nic0" for i in range(nics)})
    reports = list(_reports(nics, peers, ports, spines, rng))

    def hear() -> None:
        for report in reports:
            fabric.hear(report, ["nic0"], 0.0)

    hear_s, hear_again_s = _seconds(hear), _seconds(hear)
    build_s = _seconds(lambda: fabric.step(0.0))
    for report in reports:
        moved = [
            _around(trace) for trace in report.traces if _dead() in trace.hops and _leaf(0) in trace.hops
        ]
        fabric.hear(TraceReport(host=report.host, traces=moved), ["nic0"], 1.0)
    rebuild_s = _seconds(lambda: fabric.step(1.0))
    path_counts_s = _seconds(lambda: PathCounts(fabric.routes))
    return DiscoveryResult(len(fabric.store), hear_s, hear_again_s, build_s, rebuild_s, path_counts_s)


def _reports(nics: int, peers: int, ports: int, spines: int, rng: random.Random) -> Iterator[TraceReport]:
    for src in range(nics):
        others = [dst for dst in rng.sample(range(nics), peers + 1) if dst != src][:peers]
        traces = [
            _trace(src, dst, FIRST_PORT + port, rng.randrange(spines))
            for dst in others
            for port in range(ports)
        ]
        yield TraceReport(host=f"h{src}", traces=traces)


def _trace(src: int, dst: int, sport: int, spine: int) -> Trace:
    up, down = _leaf(src // NICS_PER_LEAF), _leaf(dst // NICS_PER_LEAF)
    hops: list[str | None] = [up] if up == down else [up, _spine(spine), down]
    return Trace(nic="nic0", dst_addr=_address(dst), sport=sport, hops=hops, reached=True, local_ns=0)


def _around(trace: Trace) -> Trace:
    return replace(trace, hops=[_spine(1) if hop == _dead() else hop for hop in trace.hops])


def _dead() -> str:
    return _spine(0)


def _leaf(number: int) -> str:
    return f"10.254.1.{number}"


def _spine(number: int) -> str:
    return f"10.254.2.{number}"


def _address(nic: int) -> str:
    return f"10.{nic // NICS_PER_LEAF}.0.{nic % NICS_PER_LEAF + 1}"


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
