"""What a report says of each path: losses, queueing, and one-way delays on the timeline."""

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.prober import STAMP_NOISE_NS, ProbeResults
from cwdp.agent.probing.schedule import PathKey
from cwdp.dataplane import abi
from cwdp.shared.bus.edges import PathStat
from cwdp.shared.bus.records import told_delays

QUANTILES = (0.0, 0.5, 0.99)
QUEUED_NS = 1_000
"""A pair whose spacing changed by more than this, either way, met a queue: far above the noise of a dataplane's
stamps, and about what one small packet in front costs at 1 Gbit/s. Noisier stamps have a limit as many times higher."""

Delays = tuple[int | None, int | None, int | None]


def path_stats(paths: list[PathKey], results: list[ProbeResults]) -> list[PathStat]:
    """Statistics of the paths of a NIC that were probed."""
    if not results:
        return []
    path = np.concatenate([d.path for d in results])
    sent = np.concatenate([d.sent for d in results])
    answered = np.concatenate([d.answered for d in results])
    slots = np.concatenate([d.slots for d in results])
    n = len(paths)
    n_sent = np.bincount(path[sent], minlength=n)
    n_answered = np.bincount(path[answered], minlength=n)
    n_queued = np.bincount(path[::2][queued_pairs(answered, slots, results[0].noise_ns)], minlength=n)
    slots, path = slots[answered], path[answered]
    order = np.argsort(path, kind="stable")
    starts = np.concatenate(([0], np.cumsum(n_answered)))
    slots = slots[order]
    out = []
    for index in np.flatnonzero(n_sent):
        mine = slots[starts[index] : starts[index + 1]]
        fwd, rev, bound_ns = _delays(mine)
        key = paths[index]
        stat = PathStat(
            src=key.src,
            dst=key.dst,
            sport=key.sport,
            reply_sport=key.reply_sport,
            sent=int(n_sent[index]),
            lost=int(n_sent[index] - n_answered[index]),
            queued=int(n_queued[index]),
            rtt_min_ns=_least_rtt(mine),
            fwd_min_ns=fwd[0],
            fwd_p50_ns=fwd[1],
            fwd_p99_ns=fwd[2],
            rev_min_ns=rev[0],
            rev_p50_ns=rev[1],
            rev_p99_ns=rev[2],
            bound_ns=bound_ns,
        )
        out.append(stat)
    return out


def queued_ns(noise_ns: float = STAMP_NOISE_NS) -> float:
    """By how much a delay must have changed for a queue to have been met, with stamps of some noise."""
    return QUEUED_NS * noise_ns / STAMP_NOISE_NS


def queued_pairs(
    answered: NDArray[np.bool_], slots: NDArray[np.void], noise_ns: float = STAMP_NOISE_NS
) -> NDArray[np.bool_]:
    """Which pairs met a queue on the way there or back; shape (pairs,)."""
    pairs = slots.reshape(-1, 2)
    changed = np.zeros(len(pairs), dtype=bool)
    for tx, rx in (("t1", "t2"), ("t3", "t4")):
        delay = (pairs[rx] - pairs[tx]).astype(np.int64)
        changed |= np.abs(delay[:, 1] - delay[:, 0]) > queued_ns(noise_ns)
    pairs_answered = answered.reshape(-1, 2)
    return pairs_answered[:, 0] & pairs_answered[:, 1] & changed


def _delays(slots: NDArray[np.void]) -> tuple[Delays, Delays, int | None]:
    synced = slots[slots["bound_ns"] != abi.BOUND_UNSYNCED]
    if not len(synced):
        return (None, None, None), (None, None, None), None
    fwd, rev = told_delays(_quantiles(synced["fwd_owd_ns"]), _quantiles(synced["rev_owd_ns"]))
    return _whole(fwd), _whole(rev), int(synced["bound_ns"].max())


def _quantiles(delays_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Delays by `QUANTILES`, int64 [3]."""
    return np.sort(delays_ns)[[round(q * (len(delays_ns) - 1)) for q in QUANTILES]]


def _whole(delays_ns: NDArray[np.int64]) -> Delays:
    low, middle, high = delays_ns.tolist()
    return low, middle, high


def _least_rtt(slots: NDArray[np.void]) -> int | None:
    if not len(slots):
        return None
    return int(((slots["t4"] - slots["t1"]) - (slots["t3"] - slots["t2"])).min())
