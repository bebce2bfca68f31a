"""How far the timelines of other pods are from this one's: fits to their hosts in, an estimate for each pod out. No I/O.

A fit from one side is off by what stamping points differ by. Both ends of a pair between pods probe, so what the other
leader sees from its side is off by as much with the same sign: half the difference is free of it. So nothing is known of a
timeline until its leader has said what it sees of this one. No clock is moved by any of this.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass

import numpy as np

from cwdp.shared.bus.messages import ClockLine, Report
from cwdp.shared.clocksync._types import I64, NS_PER_S
from cwdp.shared.clocksync.timeline.track import BOUND_SIGMAS, HostState
from manager.clock.apart import OURS, Apart, Lines, Measured, SeenAhead, measure
from manager.clock.apart_filter import AheadFilter
from manager.clock.fits import LARGEST_NUMBER, LARGEST_SLOPE, FitTable
from manager.clock.service import ClockService
from manager.clock.timeline import LARGEST_TIME_NS, is_running, timeline_ns
from manager.hosts.elsewhere import Elsewhere

EVERY_S = 1.0
LARGEST_BIAS_NS = 1e6
"""Of stamping, in user space too; what two leaders disagree by beyond that is something else."""

BIAS_ROUNDS = 8
"""Over so many messages at most a bias is averaged."""
STATS_AGE_NS, STATS_HALF_NS = 600_000_000, 600_000_000
"""How long ago the middle is of what a report says of paths, and half of how long it lasts."""

_LEAST_BOUND_NS = 1.0


class _Either(Container[str]):
    """What is in one of two."""

    def __init__(self, first: Container[str], second: Container[str]) -> None:
        self._both = first, second

    def __contains__(self, name: object) -> bool:
        return any(name in each for each in self._both)


@dataclass
class _Pod:
    """What is known of a pod's timeline.

    Attributes:
        timeline: its name.
        ahead: as seen from here.
        bias_ns, bias_var: what stamping adds to that, by what the other leader sees.
        heard_ns: time of the other timeline of which it last said that; None before it has.
    """

    timeline: str
    ahead: AheadFilter
    bias_ns: float = 0.0
    bias_var: float = 0.0
    heard_ns: int | None = None


class OtherTimelines:
    """Estimates for all other pods, in `elsewhere.apart`.

    Args:
        elsewhere: hosts of other pods, with their lines as told.
    """

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere
        self._fits = FitTable()
        self._pods: dict[str, _Pod] = {}
        self._timeline = ""
        self._stepped_s = -math.inf

    def stand_by(self) -> None:
        """Nothing is known any more: who does not solve clocks has no lines of its own hosts."""
        self._pods.clear()
        self._elsewhere.apart = {}

    def hear(self, report: Report, ours: Collection[str], now_s: float) -> None:
        """Take in a report's fits to hosts of other pods.

        Args:
            report: of a host of this pod.
            ours: the hosts of this pod.
            now_s: seconds of the manager's monotonic clock.
        """
        far = self._elsewhere.hosts
        if far:
            self._fits.add(report.host, report.fits, _Either(ours, far), now_s, ours)

    def step(self, clock: ClockService, now_s: float) -> None:
        """Compare timelines, with what was solved last; not more often than makes it worth while."""
        if now_s - self._stepped_s < EVERY_S:
            return
        self._stepped_s = now_s
        self._drop(clock, now_s)
        if not self._elsewhere.hosts and not len(self._fits):
            return
        self._forget(clock)
        for pod, measured in self._measure(clock, now_s):
            known = self._pods.get(pod)
            if known is None:
                timeline = self._elsewhere.timeline_of(pod)
                assert timeline is not None
                self._pods[pod] = _Pod(timeline, AheadFilter(measured))
            else:
                known.ahead.hear(measured)
        for pod, known in self._pods.items():
            self._hear_other_side(known, self._elsewhere.seen_by(pod))
        apart = ((pod, _apart(known)) for pod, known in self._pods.items())
        self._elsewhere.apart = {pod: each for pod, each in apart if each is not None}

    def seen(self) -> list[SeenAhead]:
        """What other leaders are told of their timelines."""
        return [
            SeenAhead(
                timeline=known.timeline,
                ref_ns=known.ahead.ref_ns,
                ahead_ns=known.ahead.ahead_ns,
                ahead_frac_ns=known.ahead.frac_ns,
                rate=known.ahead.rate_ns / NS_PER_S,
                sigma_ns=math.sqrt(known.ahead.variance),
            )
            for known in self._pods.values()
            if not known.ahead.is_doubted
        ]

    def ahead_at(self, report: Report, ours: Container[str]) -> Callable[[str], tuple[int, float] | None]:
        """What tells how far the timelines of hosts are ahead of this one while a report's paths were measured, and its bound.

        None for hosts of which that is not known, `OURS` for those of this pod.
        """
        apart = self._elsewhere.apart
        if not apart or report.clock is None or not is_running(report.local_ns, report.clock):
            return lambda host: OURS if host in ours else None
        middle_ns = np.array(timeline_ns(report.local_ns, report.clock) - STATS_AGE_NS)
        half_ns = np.array(STATS_HALF_NS)
        found = {pod: each.during(middle_ns, half_ns) for pod, each in apart.items()}
        ahead = {pod: (int(ahead_ns), float(bound_ns)) for pod, (ahead_ns, bound_ns) in found.items()}
        pod_of = self._elsewhere.pod_of
        return lambda host: OURS if host in ours else ahead.get(pod_of.get(host, ""))

    def _drop(self, clock: ClockService, now_s: float) -> None:
        """Let go of timelines that are others now, or are not told of."""
        if clock.timeline != self._timeline:
            self._timeline = clock.timeline
            self._pods.clear()
        self._pods = {
            pod: known
            for pod, known in self._pods.items()
            if self._elsewhere.is_heard(pod, now_s) and self._elsewhere.timeline_of(pod) == known.timeline
        }

    def _forget(self, clock: ClockService) -> None:
        """Let go of hosts that are gone."""
        there = _Either(clock.fits.slots, self._elsewhere.hosts)
        for host in [host for host in self._fits.slots if host not in there]:
            self._fits.forget_host(host)

    def _measure(self, clock: ClockService, now_s: float) -> Iterable[tuple[str, Measured]]:
        """What fits show of each pod that is heard."""
        self._fits.expire(now_s)
        clocks, edges = clock.clocks, self._fits.edges(now_s)
        edges = edges.where(edges.fits.valid & ~edges.young)
        if clocks is None or not len(edges.src):
            return
        places = {slot: clock.fits.slots.get(host, -1) for host, slot in self._fits.slots.items()}
        own = _looked_up(places, self._fits.slot_count)[edges.src]
        steady = (clocks.state == HostState.SYNCED) & ~clocks.changing & np.isfinite(clocks.bound_ns)
        far, lines = self._far_lines(edges.dst, now_s)
        place = _looked_up({slot: i for i, (slot, _) in enumerate(far)}, self._fits.slot_count)[edges.dst]
        usable = (own >= 0) & (own < len(steady)) & (place >= 0)
        usable[usable] = steady[own[usable]]
        # A line that was told before a clock changed leads elsewhere now.
        changed_ns = edges.since_ns[usable] + edges.fits.offset_ns[usable]
        usable[usable] = lines.ref_ns[place[usable]] >= changed_ns
        pod = np.array([pod for _, pod in far], np.str_)
        for each in np.unique(pod[place[usable]]).tolist():
            rows = usable.copy()
            rows[usable] = pod[place[usable]] == each
            kept = edges.where(rows)
            of_own, of_far = Lines.of_clocks(clocks, own[rows]), lines.where(place[rows])
            measured = measure(kept.src, kept.dst, kept.fits, of_own, of_far)
            if measured is not None:
                yield each, measured

    def _far_lines(self, dst: I64, now_s: float) -> tuple[list[tuple[int, str]], Lines]:
        """The lines of hosts that fits are to, as far as they can be gone by, and of each its slot and pod."""
        fitted, heard = set(dst.tolist()), dict[str, bool]()
        far, lines = list[tuple[int, str]](), list[ClockLine]()
        for host, slot in self._fits.slots.items():
            pod = self._elsewhere.pod_of.get(host)
            line = self._line(host) if slot in fitted and pod is not None else None
            if pod is None or line is None:
                continue
            if pod not in heard:
                heard[pod] = self._elsewhere.is_heard(pod, now_s)
            if heard[pod]:
                far.append((slot, pod))
                lines.append(line)
        return far, Lines.told(lines)

    def _line(self, host: str) -> ClockLine | None:
        """How a host elsewhere leads to its pod's timeline, where that can be gone by."""
        line = self._elsewhere.hosts[host].line
        usable = line is not None and is_running(line.ref_local_ns, line) and not line.found_anew
        return line if usable else None

    def _hear_other_side(self, known: _Pod, seen: Iterable[SeenAhead]) -> None:
        """Find out what stamping adds to what is seen from here, by what the other leader sees from there."""
        told = next((each for each in seen if each.timeline == self._timeline), None)
        if told is None or told.ref_ns == known.heard_ns or not _sane(told):
            return
        here_ns = told.ref_ns + told.ahead_ns
        ahead_ns, frac_ns = known.ahead.at(here_ns)
        bias_ns = ((ahead_ns + told.ahead_ns) + frac_ns + told.ahead_frac_ns) / 2
        if abs(bias_ns) > LARGEST_BIAS_NS:
            return
        variance = (known.ahead.variance + told.sigma_ns**2) / 4
        gain = 1.0
        if known.heard_ns is not None:
            gain = max(known.bias_var / (known.bias_var + variance), 1 / BIAS_ROUNDS)
        known.heard_ns = told.ref_ns
        known.bias_ns += gain * (bias_ns - known.bias_ns)
        known.bias_var = variance if gain == 1.0 else known.bias_var + gain * (variance - known.bias_var)


def _looked_up(places: dict[int, int], slots: int) -> I64:
    """What each slot has, -1 for nothing: int64 [slots]."""
    table = np.full(slots, -1, np.int64)
    table[np.fromiter(places, np.int64, len(places))] = np.fromiter(places.values(), np.int64, len(places))
    return table


def _apart(known: _Pod) -> Apart | None:
    """What is known of a timeline free of what stamping adds; None where that is not known."""
    if known.heard_ns is None:
        return None
    ahead = known.ahead
    sigma_ns = math.sqrt(ahead.variance + known.bias_var)
    return Apart(
        ref_ns=ahead.ref_ns,
        ahead_ns=ahead.ahead_ns,
        frac_ns=ahead.frac_ns - known.bias_ns,
        rate=ahead.rate_ns / NS_PER_S,
        bound_ns=_LEAST_BOUND_NS + BOUND_SIGMAS * sigma_ns + ahead.off_ns,
        bound_rate=BOUND_SIGMAS * ahead.sigma_rate,
    )


def _sane(told: SeenAhead) -> bool:
    """Whether the numbers can be computed with."""
    numbers = (told.ahead_frac_ns, told.sigma_ns)
    return (
        all(abs(number) <= LARGEST_NUMBER for number in numbers)
        and abs(told.rate) < LARGEST_SLOPE
        and max(abs(told.ref_ns), abs(told.ahead_ns)) <= LARGEST_TIME_NS
        and told.sigma_ns >= 0
    )
