"""What became of the probes of hosts of a swarm, by path and window, drawn from what links do; of many hosts at once.

Each host draws from its own source in the same order, with others or alone.
"""

from collections.abc import Sequence

import numpy as np

from cwdp.shared.bus.edges import NO_BOUND_NS
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS, as_bytes, told_delays
from cwdp.shared.bus.windows import PLACED_ROW
from tools.swarm.probes import HostProbes, Paths, joined

BOUND_NS = 40
WAYS = ("fwd", "rev")


def windows_of(
    hosts: Sequence[HostProbes], first: int, end: int, ahead_ns: np.ndarray, *, sums: bool
) -> list[np.ndarray]:
    """Each host's PLACED_ROWs of the windows from `first` to before `end`, path by path, those of a quiet path as one.

    Args:
        hosts: of one fabric.
        first: the first window's number.
        end: the number of the one behind the last.
        ahead_ns: by how much the timeline of each pod is ahead of the hosts'; NaN where it has none.
        sums: whether a path is quiet that loses nothing, whatever queues it meets.
    """
    paths, ends = joined(hosts)
    fabric = hosts[0].fabric
    queues_ns, all_loss = paths.queues_ns(fabric), paths.loss(fabric)
    quiet = (all_loss == 0) & (sums | (queues_ns[0] + queues_ns[1] == 0))
    sent = _sent(paths, first, end, quiet)
    path, column = np.nonzero(sent)
    row_ends = np.searchsorted(path, ends)
    rows = np.zeros(len(path), PLACED_ROW)
    counted, loss = sent[path, column], all_loss[path]
    begins = np.append(0, ends[:-1])
    rows["path"] = path - np.repeat(begins, np.diff(row_ends, prepend=0))
    rows["window"], rows["sent"] = first + column, counted
    rows["further"] = np.where(quiet, end - first - 1, 0)[path]
    lost, chance = _drawn(hosts, row_ends, counted, loss)
    rows["lost"] = lost
    apart_ns = ahead_ns[paths.pod[path]]
    timed = ~np.isnan(apart_ns) & ((loss == 0) | (lost < counted))
    base_ns = paths.base_ns.astype(np.float32)[path]
    together = rows["further"].astype(np.float32) + 1
    least_ns, mean_ns = [], []
    for queue_ns, shown_ns, (low, high) in zip(queues_ns, (apart_ns, -apart_ns), chance, strict=True):
        queued_ns = queue_ns.astype(np.float32)[path]
        often = 0.5 + (high - 0.5) / np.sqrt(together)
        base = base_ns + 30 * low + (shown_ns if ahead_ns.any() else np.float32(0))
        least_ns.append(base + queued_ns * (1 - (1 - high) ** (1 / together)))
        mean_ns.append(base + queued_ns * (often + 0.2) + 40 * often)
    _tell(rows, "min", least_ns, timed)
    _tell(rows, "mean", mean_ns, timed)
    rows["bound_ns"] = np.where(timed, BOUND_NS, 0)
    return np.split(rows, row_ends[:-1])


def stats_of(hosts: Sequence[HostProbes], ahead_ns: np.ndarray) -> list[np.ndarray]:
    """Each host's PATH_ROWs, as a report says them; `ahead_ns` as for `windows_of`."""
    paths, ends = joined(hosts)
    fabric = hosts[0].fabric
    begins = np.append(0, ends[:-1])
    places = np.concatenate([host.places + begin for host, begin in zip(hosts, begins, strict=True)])
    rows = np.concatenate([as_bytes(host.stats) for host in hosts]).view(hosts[0].stats.dtype)
    loss = paths.loss(fabric)[places]
    for host, begin, end in zip(hosts, begins.tolist(), ends.tolist(), strict=True):
        lossy = begin + np.flatnonzero(loss[begin:end])
        if len(lossy):
            rows["lost"][lossy] = host.draws.binomial(rows["sent"][lossy], loss[lossy])
    apart_ns, base_ns = ahead_ns[paths.pod[places]], paths.base_ns[places]
    timed = ~np.isnan(apart_ns)
    least = [base_ns + 0.3 * queue_ns[places] for queue_ns in paths.queues_ns(fabric)]
    for quantile, more_ns in (("min", 0), ("p50", 30), ("p99", 90)):
        _tell(rows, quantile, [least[0] + more_ns + apart_ns, least[1] + more_ns - apart_ns], timed)
    rows["rtt_min_ns"] = sum(least)
    rows["bound_ns"] = np.where(timed, BOUND_NS, NO_BOUND_NS)
    return np.split(rows, ends[:-1])


def _sent(paths: Paths, first: int, end: int, quiet: np.ndarray) -> np.ndarray:
    """How many probes are sent in each window, shape (paths, windows); of quiet paths in all of them, told in the first.

    Where all paths are quiet there is but one column.
    """
    if quiet.all():
        return _between(paths, np.array([first, end]))
    sent = _between(paths, np.arange(first, end + 1))
    sent[quiet, 0], sent[quiet, 1:] = sent[quiet].sum(axis=1), 0
    return sent


def _between(paths: Paths, numbers: np.ndarray) -> np.ndarray:
    """How many probes are sent from the beginning of each window to that of the next in `numbers`, shape (paths, numbers - 1)."""
    pairs = np.floor(numbers * WINDOW_NS / paths.period_ns[:, None] + paths.phase[:, None])
    return np.asarray(2 * np.diff(pairs, axis=1).astype(np.int64))


def _drawn(
    hosts: Sequence[HostProbes], row_ends: np.ndarray, counted: np.ndarray, loss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many probes of each row are lost, shape (rows,), and what else chance decides, shape (ways, 2, rows)."""
    lost, chance = np.zeros(len(counted), np.int64), []
    begin = 0
    for host, end in zip(hosts, row_ends.tolist(), strict=True):
        lossy = begin + np.flatnonzero(loss[begin:end])
        if len(lossy):
            lost[lossy] = host.draws.binomial(counted[lossy], loss[lossy])
        chance.append(host.draws.random((len(WAYS), 2, end - begin), np.float32))
        begin = end
    return lost, np.concatenate(chance, axis=-1)


def _tell(rows: np.ndarray, what: str, delays_ns: Sequence[np.ndarray], timed: np.ndarray) -> None:
    """Have rows say what delays are there and back, as agents' rows have it."""
    whole = [np.where(timed, each, 0).astype(np.int64) for each in delays_ns]
    for way, told_ns in zip(WAYS, told_delays(*whole), strict=True):
        rows[f"{way}_{what}_ns"] = np.where(timed, told_ns, NO_DELAY_NS)
