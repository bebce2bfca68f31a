"""What it takes to infer the jobs of a swarm of which as many bursts are kept as a manager keeps, without the manager."""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import BURST_ROW, packed_address
from manager.jobs.flows import Flow, NicName, Rows
from manager.jobs.inference import Job, infer
from manager.jobs.membership import Owner, Owners
from manager.jobs.steps import finish
from manager.queue_pairs.bursts import BurstStore
from tools.bench.figures import Figure, figure
from tools.swarm.fabric import Size, SwarmFabric, nic_address
from tools.swarm.iterations import Iterations
from tools.swarm.traffic import Traffic

NICS = 2_048
HEARD_S, EVERY_S = 90, 10
EPOCH_NS = 1_700_000_000 * 10**9
NOW_NS = EPOCH_NS + HEARD_S * 10**9
TIMES = 7


def figures() -> Iterator[Figure]:
    """A minute. Of jobs whose processes are known, and of the same where they are not: then each rail is a job."""
    size = Size(nics=NICS)
    traffic = Traffic(SwarmFabric(size), seed=1)
    names = [(f"h{nic // size.nics_per_host}", f"nic{nic % size.nics_per_host}") for nic in range(NICS)]
    rings = _heard(traffic, size, names).now()
    addresses = {packed_address(nic_address(nic)): nic_id(*name) for nic, name in enumerate(names)}
    for name, owners in (("owned", _owners(traffic, names)), ("unknown", dict[Flow, Owners]())):
        once = partial(_inferred, rings, addresses, owners)
        jobs = once()
        reference = {
            "jobs": len(jobs),
            "nics_each": sorted({len(job.members) for job in jobs}),
            "bursts": sum(len(rows) for rows in rings.values()),
        }
        again_s = _times(partial(once, jobs))
        reference["longest_s"] = round(max(again_s), 3)
        yield figure(f"jobs.{NICS}.{name}", median(again_s), "s", reference, None)
        yield figure(f"jobs.{NICS}.{name}.anew", median(_times(once)), "s", reference, None)
        yield figure(f"jobs.{NICS}.{name}.memory", _peak_bytes(partial(once, jobs)), "bytes", reference, None)


def _heard(traffic: Traffic, size: Size, names: list[tuple[str, str]]) -> BurstStore:
    """All bursts that end until now."""
    store, iterations = BurstStore(), Iterations(size.hosts, seed=1)
    for nic, name in enumerate(names):
        for until_s in range(EVERY_S, HEARD_S + 1, EVERY_S):
            until_ns = EPOCH_NS + until_s * 10**9
            one = range(nic, nic + 1)
            starts_ns = iterations.ended(traffic.jobs_of(one), until_ns - EVERY_S * 10**9, until_ns)
            rows = rows_of(next(traffic.bursts(one, starts_ns)), BURST_ROW)
            store.hear([name], rows, [len(rows)], until_ns)
    return store


def _owners(traffic: Traffic, names: list[tuple[str, str]]) -> dict[Flow, Owners]:
    """One process a host, which names its job."""
    found: dict[Flow, Owners] = {}
    flows = zip(traffic.src.tolist(), traffic.dst.tolist(), traffic.told_qpn.tolist(), strict=True)
    for (src, dst, qpn), job in zip(flows, traffic.job.tolist(), strict=True):
        ends = names[src], names[dst]
        sender, receiver = (Owner(host, 1, f"job{job}") for host, _ in ends)
        found[Flow(nic_id(*ends[0]), nic_id(*ends[1]), qpn)] = sender, receiver
    return found


def _inferred(
    rings: Mapping[NicName, Rows],
    addresses: Mapping[bytes, str],
    owners: Mapping[Flow, Owners],
    before: Sequence[Job] = (),
) -> Sequence[Job]:
    return finish(infer(rings, addresses, owners, NOW_NS, before)).jobs


def _times(once: Callable[[], Sequence[Job]]) -> list[float]:
    """The processor time of each of some times."""
    found = []
    for _ in range(TIMES):
        started = time.thread_time()
        once()
        found.append(time.thread_time() - started)
    return found


def _peak_bytes(once: Callable[[], Sequence[Job]]) -> int:
    """Of what is allocated meanwhile."""
    tracemalloc.start()
    once()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
