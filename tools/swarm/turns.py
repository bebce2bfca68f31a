"""What many hosts of a swarm say in one turn, worked out together: small arrays cost by the call, not by their size."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from cwdp.shared.bus.edges import EdgeRows
from cwdp.shared.bus.messages import Report, WindowReport
from tools.swarm.hosts import Over, SwarmHost
from tools.swarm.measured import stats_of, windows_of
from tools.swarm.probes import HostProbes

NO_ROWS = EdgeRows()

Probing = tuple[SwarmHost, HostProbes]


def windows(hosts: Iterable[SwarmHost], now_ns: int) -> Iterator[tuple[SwarmHost, WindowReport]]:
    """What became of probes in the windows that are over; by any number of messages a host, in their order."""
    telling: dict[Over, list[Probing]] = defaultdict(list)
    for host in hosts:
        over = host.windows_over(now_ns)
        if over is not None and host.probes is not None:
            telling[over].append((host, host.probes))
    for (pod, first, end, sums), some in telling.items():
        ahead_ns = some[0][0].world.timelines.ahead_ns(pod, now_ns)
        found = windows_of([probes for _, probes in some], first, end, ahead_ns, sums=sums)
        for (host, _), rows in zip(some, found, strict=True):
            for report in host.windows(rows):
                yield host, report


def reports(
    hosts: Sequence[SwarmHost], now_ns: int, *, with_fits: bool, in_full: bool, with_counters: bool
) -> Iterator[tuple[SwarmHost, Report]]:
    """What each has measured."""
    probing = [(host, host.probes) for host in hosts if host.probes is not None]
    fits = _fits(probing, now_ns) if with_fits else {}
    stats = _stats(probing, now_ns) if in_full else {}
    for host in hosts:
        number = host.number
        told = fits.get(number, NO_ROWS), stats.get(number, NO_ROWS)
        yield host, host.report(now_ns, *told, in_full=in_full, with_counters=with_counters)


def _fits(probing: Iterable[Probing], now_ns: int) -> dict[int, EdgeRows]:
    """Of all edges, by the hosts' numbers."""
    return {
        host.number: probes.told_rows(probes.fits(now_ns, host.number, host.world.clocks))
        for host, probes in probing
    }


def _stats(probing: Iterable[Probing], now_ns: int) -> dict[int, EdgeRows]:
    """Of all paths, by the hosts' numbers."""
    by_pod: dict[int, list[Probing]] = defaultdict(list)
    for each in probing:
        by_pod[each[0].pod].append(each)
    told: dict[int, EdgeRows] = {}
    for pod, some in by_pod.items():
        ahead_ns = some[0][0].world.timelines.ahead_ns(pod, now_ns)
        found = stats_of([probes for _, probes in some], ahead_ns)
        told |= {
            host.number: probes.told_rows(rows) for (host, probes), rows in zip(some, found, strict=True)
        }
    return told
