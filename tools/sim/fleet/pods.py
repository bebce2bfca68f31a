"""Two pods from their cold start, each with clocks and a timeline of its own, that tell each other what leaders do.

What is found of how far their timelines are apart is held against what the published clocks of both show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cwdp.agent.clock.hostclock import HostClock
from cwdp.agent.clock.hostsync import HostSync
from cwdp.shared.bus.edges import fit_rows
from cwdp.shared.bus.messages import Nic, Report
from cwdp.shared.clocksync._types import NS_PER_S
from manager.clock.service import ClockService
from manager.clock.timeline import Identity
from manager.hosts.elsewhere import Elsewhere, PodHost
from manager.pods.directory import AGAIN_S
from manager.pods.timelines import OtherTimelines
from tools.sim.clocks.clos import random_pairs
from tools.sim.clocks.disciplined import as_stamped
from tools.sim.clocks.manoeuvres import Manoeuvre
from tools.sim.clocks.oscillators import Oscillators
from tools.sim.fleet.probes import FleetOptions, Floats, draw_probes
from tools.sim.fleet.simulation import ANSWERED_AFTER_S, START_WITHIN_S, TICK_S, SimulatedClock, weighed

PODS = "a", "b"
READ_S = 0.1
SETTLED_S = 13.0
BETWEEN = 2


@dataclass(frozen=True, slots=True)
class ApartFigures:
    """Of what both leaders know, once they have had time; absolute errors.

    `outside` is the share of claims that the truth was outside of, `known` that of moments with a claim.
    """

    apart_s: float
    drift_us_per_s: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    bound_p50_ns: float
    outside: float
    known: float


@dataclass(frozen=True, slots=True)
class ApartResult:
    """What was sampled.

    Attributes:
        time_s: since the first probe, shape (samples,).
        error_ns: of what each pod's leader knows of how far the other timeline is, shape (samples, pods); NaN for nothing.
        bound_ns: the bound claimed, shape (samples, pods).
        apart_ns: how far the timeline of the second pod is ahead, shape (samples,).
    """

    time_s: Floats
    error_ns: Floats
    bound_ns: Floats
    apart_ns: Floats

    def settled(self) -> ApartFigures:
        """Figures of all from `SETTLED_S` on."""
        rows = self.time_s >= SETTLED_S
        known = ~np.isnan(self.error_ns[rows])
        error, bound = np.abs(self.error_ns[rows][known]), self.bound_ns[rows][known]
        p50, p99 = np.quantile(error, (0.5, 0.99))
        apart_ns, time_s = self.apart_ns[rows], self.time_s[rows]
        return ApartFigures(
            float(apart_ns[-1] / NS_PER_S),
            float((apart_ns[-1] - apart_ns[0]) / (time_s[-1] - time_s[0]) / 1e3),
            float(p50),
            float(p99),
            float(error.max()),
            float(np.median(bound)),
            float(np.mean(error > bound)),
            float(np.mean(known)),
        )


class _Leader:
    """What a pod's leader has of clocks."""

    def __init__(self, timeline: str, starts: int) -> None:
        self.elsewhere = Elsewhere()
        self.clock = ClockService(Identity(timeline=timeline, starts=starts), continued=starts > 1)
        self.timelines = OtherTimelines(self.elsewhere)
        self.epoch, self.number = starts, 1


class PodsSimulation:
    """State of one run.

    Args:
        options: each pod; `hosts` is how many it has.
        manoeuvre: what all clocks do; the first host is of the first pod.
        takeovers_s: when another manager takes over the second pod.
        others_s: when one does that goes on with another timeline.
    """

    def __init__(
        self,
        options: FleetOptions,
        manoeuvre: Manoeuvre | None = None,
        takeovers_s: Sequence[float] = (),
        others_s: Sequence[float] = (),
    ) -> None:
        self._seconds = options.seconds
        self._rng = rng = np.random.default_rng(options.seed)
        self._per = options.hosts
        n = len(PODS) * options.hosts
        self._names = [f"{PODS[i // self._per]}{i % self._per}" for i in range(n)]
        clocks = Oscillators.random(
            n, options.seconds + 1, rng, drift_ppm=options.drift_ppm, wander=options.wander
        )
        self._clocks = as_stamped(clocks, manoeuvre, options.seed, rng)
        self._start_s = np.append(0.0, rng.uniform(0, START_WITHIN_S, n - 1))
        peers = self._peers(options, rng)
        self._probes = [
            draw_probes(options, self._clocks, i, peers[i], start_s=float(self._start_s[i]), rng=rng)
            for i in range(n)
        ]
        self._heard = np.zeros(n, np.int64)
        self._leaders = [_Leader(f"timeline of {pod}", 1) for pod in PODS]
        self._takeovers = sorted([(s, False) for s in takeovers_s] + [(s, True) for s in others_s])
        self._local = [SimulatedClock(self._clocks, i) for i in range(n)]
        self._syncs = [HostSync(HostClock(local, ""), local.now_ns) for local in self._local]
        for sync, name, mine in zip(self._syncs, self._names, peers, strict=True):
            sync.edges.assign([(f"{name}/nic0", f"{self._names[j]}/nic0") for j in mine])

    def run(self) -> ApartResult:
        """All of it."""
        rows = []
        for now_s, what, which in self._ticks():
            for local in self._local:
                local.true_ns = now_s * NS_PER_S
            if what == "look":
                self._look(which, now_s)
            elif what == "solve":
                self._solve(which, now_s)
            elif what == "tell":
                self._tell(which, now_s)
            else:
                rows.append((now_s, *self._read(now_s)))
        time_s, error_ns, bound_ns, apart_ns = (np.array(column) for column in zip(*rows, strict=True))
        return ApartResult(time_s, error_ns, bound_ns, apart_ns)

    def _peers(self, options: FleetOptions, rng: np.random.Generator) -> list[np.ndarray]:
        """Whom each host probes: some of its pod, and some of the other."""
        pairs = set[tuple[int, int]]()
        for pod in range(len(PODS)):
            a, b = random_pairs(self._per, options.peers, rng)
            pairs |= set(zip((a + pod * self._per).tolist(), (b + pod * self._per).tolist(), strict=True))
        for _ in range(BETWEEN):
            pairs |= set(enumerate((self._per + rng.permutation(self._per)).tolist()))
        return [
            np.array(sorted([b for a, b in pairs if a == i] + [a for a, b in pairs if b == i]), np.int64)
            for i in range(len(self._names))
        ]

    def _ticks(self) -> list[tuple[float, str, int]]:
        """When who does what."""
        often = [(start_s, TICK_S, "look", i) for i, start_s in enumerate(self._start_s.tolist())]
        for pod in range(len(PODS)):
            often.append((float(self._rng.uniform(0, TICK_S)), TICK_S, "solve", pod))
            often.append((float(self._rng.uniform(0, AGAIN_S)), AGAIN_S, "tell", pod))
        often.append((0.0, READ_S, "read", 0))
        return sorted(
            (at_s, what, which)
            for start_s, every_s, what, which in often
            for at_s in np.arange(start_s, self._seconds, every_s).tolist()
        )

    def _pod(self, pod: int) -> list[str]:
        return self._names[pod * self._per : (pod + 1) * self._per]

    def _look(self, host: int, now_s: float) -> None:
        probes, begin = self._probes[host], int(self._heard[host])
        end = int(np.searchsorted(probes.sent_s, now_s - ANSWERED_AFTER_S)) & ~1
        self._heard[host] = end
        sync, now_ns = self._syncs[host], round(now_s * NS_PER_S)
        if end > begin:
            sync.add(now_ns, weighed(probes, slice(begin, end)))
        sync.look(now_ns)
        sync.line.write([])
        report = Report(
            host=self._names[host],
            boot_id="",
            seq=0,
            local_ns=self._local[host].now_ns(),
            fits=fit_rows(sync.fits()),
            counters={},
            clock=sync.line.report(),
            own_change=sync.own_change(now_ns),
        )
        pod = host // self._per
        leader, ours = self._leaders[pod], self._pod(pod)
        known = set(self._names) - set(ours)
        leader.clock.hear(report, ours, now_s, known)
        leader.timelines.hear(report, ours, now_s)

    def _solve(self, pod: int, now_s: float) -> None:
        if pod == 1 and self._takeovers and now_s >= self._takeovers[0][0]:
            _, anew = self._takeovers.pop(0)
            before = self._leaders[pod]
            timeline = f"{before.clock.timeline}, another" if anew else before.clock.timeline
            self._leaders[pod] = _Leader(timeline, before.epoch + 1)
        leader = self._leaders[pod]
        edges = leader.clock.begin(now_s)
        solved = None if edges is None else leader.clock.solve_edges(edges)
        if edges is None or solved is None:
            return
        leader.clock.finish(edges, solved, now_s)
        leader.timelines.step(leader.clock, now_s)
        for update in leader.clock.updates():
            host = self._names.index(update.host)
            self._syncs[host].follow(update)
            self._syncs[host].line.write([])

    def _tell(self, pod: int, now_s: float) -> None:
        leader = self._leaders[pod]
        hosts = [
            PodHost(host=name, nics=[_nic(self._names.index(name))], line=leader.clock.line_of(name))
            for name in self._pod(pod)
        ]
        for other in self._leaders:
            if other is not leader:
                other.elsewhere.take(
                    PODS[pod],
                    hosts,
                    epoch=leader.epoch,
                    number=leader.number,
                    timeline=leader.clock.timeline,
                    seen=leader.timelines.seen(),
                    now_s=now_s,
                )
                other.elsewhere.step([], now_s)

    def _read(self, now_s: float) -> tuple[list[float], list[float], float]:
        """Errors and bounds of both leaders, and how far the second timeline is ahead."""
        shown = [self._shown(pod, now_s) for pod in range(len(PODS))]
        if None in shown:
            return [np.nan, np.nan], [np.nan, np.nan], np.nan
        (base_a, rest_a), (base_b, rest_b) = (each for each in shown if each is not None)
        truth_ns = (base_b - base_a) + rest_b - rest_a
        errors, bounds = [], []
        for pod, base in enumerate((base_a, base_b)):
            apart = self._leaders[pod].elsewhere.apart.get(PODS[1 - pod])
            if apart is None:
                errors.append(np.nan)
                bounds.append(np.nan)
                continue
            age_ns = base - apart.ref_ns
            sign = 1 if pod == 0 else -1
            ahead = apart.ahead_ns - sign * (base_b - base_a)
            errors.append(ahead + apart.frac_ns + apart.rate * age_ns - sign * (rest_b - rest_a))
            bounds.append(apart.bound_ns + apart.bound_rate * abs(age_ns))
        return errors, bounds, truth_ns

    def _shown(self, pod: int, now_s: float) -> tuple[int, float] | None:
        """What a pod's timeline shows, the median of its published clocks, whole and rest."""
        hosts = np.arange(pod * self._per, (pod + 1) * self._per)
        whole, rest = self._clocks.local(hosts, np.full(self._per, now_s * NS_PER_S))
        local_ns, rest = whole + np.rint(rest).astype(np.int64), rest - np.rint(rest)
        shown = []
        for i, here_ns in enumerate(local_ns.tolist()):
            line = self._syncs[hosts[i]].line
            if line.published is not None and line.state == "synced":
                at = line.published.at(here_ns)
                shown.append((here_ns + at.offset_ns, at.offset_frac_ns + rest[i]))
        if not shown:
            return None
        base = shown[0][0]
        return base, float(np.median([(ns - base) + frac for ns, frac in shown]))


def _nic(number: int) -> Nic:
    return Nic(ifname="nic0", mac="", ipv4=f"10.0.0.{number}", ipv6=None, carrier=True, mode="native")
