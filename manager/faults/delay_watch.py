"""Follows queues that stand: a link that carries less than its like, a host that is slow to send or to receive.

A queue stands at a healthy link too, when more comes than it can carry; then it carries as much as its like do. No I/O.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Kind, Subject, cable, direction
from manager.links.inference import QueueInference
from manager.links.loads import LinkLoads, lower_median_bps, tiers

STANDS_WINDOWS = 12
SEEN_WINDOWS = 5
"""So many windows in a row must say so: the loads that it goes by are those of a moment."""

OVER_WINDOWS = 30
SLOW_SHARE = 0.7
"""A link whose queue stands while it carries less than this share of what its like can."""

IDLE_SHARE = 0.1
"""An own queue of a NIC that sends or receives less than this share is its host's doing."""

LEAST_SLOW_NS = 100_000.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Slow:
    """Something that delays what it should not, by the queue of a link."""

    kind: Kind
    subject: Subject
    link: DirectedLink
    evidence: str


@dataclass(kw_only=True)
class _Followed:
    finding: Finding
    link: DirectedLink
    well: int = 0


class DelayWatch:
    """The standing queues of one fleet.

    Args:
        open_finding: announces one and returns its finding.
        close_finding: announces that it is over.
    """

    def __init__(
        self, open_finding: Callable[[Slow], Finding], close_finding: Callable[[Finding], None]
    ) -> None:
        self._open, self._close = open_finding, close_finding
        self._followed: dict[tuple[Kind, str], _Followed] = {}
        self._seen_windows: dict[tuple[Kind, str], int] = {}

    def step(self, queues: QueueInference, loads: LinkLoads) -> None:
        """Look at the queues as they are now; `loads` are of the same links."""
        stands = queues.stands(STANDS_WINDOWS)
        found = _slow(stands, queues.queue_ns[-STANDS_WINDOWS:], loads)
        slow = {(what.kind, what.subject.name): what for what in found}
        self._seen_windows = {key: self._seen_windows.get(key, 0) + 1 for key in slow}
        for key, what in slow.items():
            if key not in self._followed and self._seen_windows[key] >= SEEN_WINDOWS:
                self._followed[key] = _Followed(finding=self._open(what), link=what.link)
        unknown = _unknown(queues, loads) if self._followed else set()
        for key, followed in list(self._followed.items()):
            if key in slow:
                followed.well = 0
            elif followed.link not in unknown:
                followed.well += 1
            if followed.well > OVER_WINDOWS:
                self._close(followed.finding)
                del self._followed[key]


def _unknown(queues: QueueInference, loads: LinkLoads) -> set[DirectedLink]:
    """Links that are there and of whose queues nothing is known now: it is not known that they are well either."""
    return {loads.routes.links[i] for i in np.flatnonzero(np.isnan(queues.queue_ns[-1])).tolist()}


def _slow(stands: NDArray[np.bool_], queue_ns: Floats, loads: LinkLoads) -> Iterator[Slow]:
    links = loads.routes.links
    tier = tiers(links)
    for i in np.flatnonzero(stands).tolist():
        link, delay_ns = links[i], float(queue_ns[:, i].mean())
        like = tier == tier[i]
        like[i] = False
        best_bps = _best(loads, like)
        if delay_ns < LEAST_SLOW_NS:
            continue
        load_bps = float(loads.load_bps[i])
        own = "/" in link.a or "/" in link.b
        waits = f"probes wait {delay_ns / 1e3:,.0f} us for it and it is never idle"
        if own and load_bps <= IDLE_SHARE * best_bps and not _any_stands(stands, like):
            yield _slow_host(link, f"{waits}, with {load_bps / 1e6:,.0f} Mbit/s of queue pairs over it")
        elif loads.is_sure[i] and IDLE_SHARE * best_bps < load_bps < SLOW_SHARE * best_bps:
            carries = f"it carries {load_bps / 1e6:,.0f} Mbit/s, others like it {best_bps / 1e6:,.0f}"
            subject = cable(link) if _both(stands, links, link) else direction(link)
            yield Slow("slow", subject, link, f"{waits}; {carries}")


def _best(loads: LinkLoads, like: NDArray[np.bool_]) -> float:
    """What one link of a tier carries now, or half of them have been seen to carry: one look may have seen too much."""
    full = loads.capacity_bps[like]
    full = full[np.isfinite(full)]
    often_bps = lower_median_bps(full) if len(full) else 0.0
    return max(float(loads.load_bps[like].max(initial=0.0)), often_bps)


def _any_stands(stands: NDArray[np.bool_], like: NDArray[np.bool_]) -> bool:
    return bool(2 * np.count_nonzero(stands & like) >= np.count_nonzero(like))


def _both(stands: NDArray[np.bool_], links: tuple[DirectedLink, ...], link: DirectedLink) -> bool:
    back = DirectedLink(link.b, link.a)
    return back in links and bool(stands[links.index(back)])


def _slow_host(link: DirectedLink, evidence: str) -> Slow:
    nic = link.a if "/" in link.a else link.b
    sends = nic == link.a
    host = Subject("host", nic.partition("/")[0])
    return Slow("slow_sender" if sends else "slow_receiver", host, link, f"{nic}: {evidence}")
