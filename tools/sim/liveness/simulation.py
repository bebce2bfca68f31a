"""Liveness at scale: how soon a host of thousands of watched paths leaves a silent link, and when it errs.

The plan of pulses is the agent's own; the dataplane's rule is `bpf/steering/failover.h` in arrays. Fabrics are Clos
networks of two or three tiers, cables fail both ways, and replies come back over paths of their own, drawn anew for each
pulse.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.cover import NO_LINK
from cwdp.agent.liveness.coveredpaths import CoveredPaths
from cwdp.agent.liveness.everypath import BURST_TURNS, CALM_TURNS, EveryPath
from cwdp.agent.liveness.plan import BURST_PULSES, Mask, Plan, Rows, TokenBucket, Watched
from cwdp.dataplane.abi import PathState
from tools.sim.liveness.rule import PathRule

MS, NS_PER_S = 1_000_000, 1_000_000_000
STEP_NS = MS // 4
TURN_NS, GAP_NS, DEAD_AFTER_NS = 2 * MS, 8 * MS, 10 * MS
RTT_NS, JITTER_NS = 30_000, 10_000.0
WARM_NS, DARK_NS, CALM_NS = 1_500 * MS, 150 * MS, 200 * MS
BACKLOG_MS = 30.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A host's NICs and what they talk to.

    Attributes:
        rails: whether each NIC has a leaf of its own, and so have its peers; else all NICs are below one.
        leaves: that the peers of a NIC are below.
        spines: that a leaf has uplinks to; in three tiers the switches above the leaves of a pod.
        cores: that each of those has uplinks to, in three tiers; 0 for two.
        pods: that the peers' leaves are spread over, in three tiers.
    """

    rails: bool
    leaves: int
    spines: int
    cores: int = 0
    pods: int = 1
    nics: int = 8
    peers: int = 128


FABRICS = {
    "leaf": Shape(rails=False, leaves=3, spines=16),
    "wide": Shape(rails=False, leaves=12, spines=16),
    "rails": Shape(rails=True, leaves=3, spines=16),
    "three-tiers": Shape(rails=False, leaves=12, spines=8, cores=8, pods=3),
}


class Fabric:
    """The paths of a host: a primary and a backup to each peer, that share no link but the first and the last.

    Attributes:
        cables: of each path, numbers of those that it crosses; shape (paths, longest), NO_LINK behind the last.
        watched: the same as the agent knows them.
        backup: the row of each path's backup, shape (paths,); its own where it is one itself.
    """

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self._shape, self._rng = shape, rng
        self._names: dict[tuple[object, ...], int] = {}
        rows, self._ends = [], []
        for nic in range(shape.nics):
            for _ in range(shape.peers):
                leaf = int(rng.integers(shape.leaves))
                ways = rng.choice(shape.spines, 2, replace=False)
                for way in ways.tolist():
                    rows.append(self._path(nic, leaf, way))
                    self._ends.append((nic, leaf))
        self.cables = _padded(rows)
        count = len(rows)
        is_primary = np.arange(count) % 2 == 0
        pairs = np.arange(count).reshape(-1, 2)
        self.watched = Watched(pairs, is_primary, np.zeros(count, bool), self.cables)
        self.backup = np.arange(count) | 1
        ends = np.array(self._ends)
        self._replies = np.stack(
            [_padded([self._path(n, m, w) for n, m in ends.tolist()]) for w in range(shape.spines)]
        )

    def between_switches(self, rows: Rows) -> Rows:
        """The cables between switches that some paths cross."""
        own = [number for name, number in self._names.items() if name[0] == "nic"]
        crossed: Rows = np.setdiff1d(self.cables[rows], [NO_LINK, *own])
        return crossed

    @property
    def count(self) -> int:
        """How many cables there are."""
        return len(self._names)

    def replies(self, rows: Rows) -> NDArray[np.intp]:
        """The cables that answers come back over, drawn for each row."""
        drawn: NDArray[np.intp] = self._replies[self._rng.integers(self._shape.spines, size=len(rows)), rows]
        return drawn

    def _path(self, nic: int, leaf: int, way: int) -> list[int]:
        shape = self._shape
        rail = nic if shape.rails else 0
        names: list[tuple[object, ...]] = [("nic", nic), ("up", rail, way)]
        if shape.cores:
            core, pod = int(self._rng.integers(shape.cores)), leaf % shape.pods
            names += [("core", rail, way, core), ("pod", rail, pod, way, core)]
        names.append(("down", rail, way, leaf))
        return [self._names.setdefault(name, len(self._names)) for name in names]


def _padded(rows: list[list[int]]) -> NDArray[np.intp]:
    longest = max(len(row) for row in rows)
    return np.array([row + [NO_LINK] * (longest - len(row)) for row in rows], dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What queue pairs do, and what goes wrong.

    Attributes:
        active: the share of primary paths that queue pairs send over.
        acknowledged: whether acknowledgements are seen to come back in each turn.
        lost: the share of pulses that are lost, wherever.
        bursts_per_s: on each cable, exponential waits of `burst_ms` on the average.
    """

    active: float = 1.0
    acknowledged: bool = True
    lost: float = 0.0
    bursts_per_s: float = 0.0
    burst_ms: float = 3.0


class World:
    """The fabric, the dataplane of the host and its traffic, step by step; the columns that plans read.

    Attributes:
        sent: pulses so far.
        rule: of the dataplane.
    """

    def __init__(self, fabric: Fabric, traffic: Traffic, rule: PathRule, rng: np.random.Generator) -> None:
        self._fabric, self._traffic, self.rule, self._rng = fabric, traffic, rule, rng
        self._cut = np.zeros(fabric.count + 1, dtype=bool)
        self._free_ns = np.zeros(fabric.count + 1, dtype=np.int64)
        self._due: defaultdict[int, list[tuple[int, NDArray[np.int64], Rows]]] = defaultdict(list)
        primary = np.flatnonzero(fabric.watched.is_primary)
        self.active = primary[rng.random(len(primary)) < traffic.active]
        self.now_ns = 0
        self.sent = 0

    def read(self, name: str) -> NDArray[np.uint64]:
        """See `cwdp.agent.liveness.plan.Columns`."""
        values: NDArray[np.int64] = getattr(self.rule, name)
        return values.astype(np.uint64)

    def heard(self) -> tuple[Mask, Mask]:
        """See `cwdp.agent.liveness.plan.Columns`."""
        sent = np.zeros(len(self._fabric.watched), dtype=bool)
        down = self.rule.state[self.active] == PathState.DOWN
        sent[np.where(down, self._fabric.backup[self.active], self.active)] = True
        answered = sent & ~self._is_cut(self._fabric.cables)
        return sent, answered if self._traffic.acknowledged else np.zeros_like(sent)

    def cut(self, cable: int) -> None:
        """Let nothing pass a cable, either way."""
        self._cut[cable] = True

    def heal(self) -> None:
        """Mend all, and forget that anything was wrong."""
        self._cut[:] = False
        self.rule.forget()

    def send(self, rows: Rows) -> None:
        """Pulses leave over these paths."""
        self.sent += len(rows)
        self.rule.pulses_sent(rows, self.now_ns)
        back = self._fabric.replies(rows)
        there = self._fabric.cables[rows]
        lost = self._is_cut(there) | self._is_cut(back) | (self._rng.random(len(rows)) < self._traffic.lost)
        waits_ns = np.maximum(0, self._free_ns[np.concatenate([there, back], axis=1)] - self.now_ns)
        took_ns = RTT_NS + self._rng.exponential(JITTER_NS, len(rows)) + waits_ns.sum(axis=1)
        home_ns = (self.now_ns + took_ns)[~lost].astype(np.int64)
        for step in np.unique(home_ns // STEP_NS).tolist():
            now = home_ns // STEP_NS == step
            self._due[step + 1].append((self.now_ns, home_ns[now], rows[~lost][now]))

    def step(self) -> Rows:
        """A step further; the primary paths that are given up in it."""
        self.now_ns += STEP_NS
        for sent_ns, home_ns, rows in self._due.pop(self.now_ns // STEP_NS, []):
            self.rule.pulses_answered(rows, sent_ns, home_ns)
        if self._traffic.bursts_per_s:
            self._burst()
        return self.rule.give_up(self.active, self._fabric.backup[self.active], self.now_ns)

    def _burst(self) -> None:
        share = self._traffic.bursts_per_s * STEP_NS / 1e9
        hit = np.flatnonzero(self._rng.random(self._fabric.count) < share)
        more_ns = self._rng.exponential(self._traffic.burst_ms * MS, len(hit)).astype(np.int64)
        full_ns = self.now_ns + int(BACKLOG_MS * MS)
        self._free_ns[hit] = np.minimum(np.maximum(self._free_ns[hit], self.now_ns) + more_ns, full_ns)

    def _is_cut(self, cables: NDArray[np.intp]) -> Mask:
        cut: Mask = np.logical_or.reduce(self._cut[cables], axis=1)
        return cut


class Run:
    """A fabric, what happens on it, and the pulses that a plan has sent."""

    def __init__(self, fabric: Fabric, world: World, plan: Plan, turn_ns: int, bucket: TokenBucket) -> None:
        self.fabric, self.world, self.bucket, self._plan, self._turn_ns = fabric, world, bucket, plan, turn_ns
        self._due_ns, self._between = 0, False

    def go(self, span_ns: int) -> list[tuple[int, int]]:
        """So much longer; the time and path of each that was given up."""
        world, given_up = self.world, []
        end_ns = world.now_ns + span_ns
        while world.now_ns < end_ns:
            if world.now_ns >= self._due_ns:
                rows, self._between = self._plan.turn(world.now_ns)
                world.send(rows)
                self._due_ns += self._turn_ns
            elif self._between and world.now_ns >= self._due_ns - self._turn_ns // 2:
                world.send(self._plan.between(world.now_ns))
                self._between = False
            given_up += [(world.now_ns, row) for row in world.step().tolist()]
        return given_up


@dataclass(frozen=True, slots=True)
class FalseFigures:
    """Paths that were given up though nothing was cut."""

    paths: int
    seconds: float
    switches: int
    pulses_per_s: float


@dataclass(frozen=True, slots=True)
class CutFigures:
    """Of all paths in use that crossed a cable that was cut.

    Attributes:
        paths: watched.
        p50_ms, p99_ms, max_ms: from the cut until the path was given up; not given up in time is infinite.
        pulses_per_s: before the first cut.
        more_pulses: in the tenth of a second after a cut than before, at most.
    """

    paths: int
    cuts: int
    hit: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    pulses_per_s: float
    more_pulses: float


def run_of(shape: Shape, traffic: Traffic, seed: int, each_per_s: float | None = None) -> Run:
    """A run of the plan that the agent would choose, or of one that asks each path by itself, at most so often a host."""
    rng = np.random.default_rng(seed)
    fabric = Fabric(shape, rng)
    watched = fabric.watched
    world = World(fabric, traffic, PathRule(len(watched), DEAD_AFTER_NS, 0 if each_per_s else GAP_NS), rng)
    if each_per_s or watched.fits(TURN_NS):
        bucket = TokenBucket(BURST_TURNS * CALM_TURNS)
        turn_ns = max(TURN_NS, round(len(watched) * NS_PER_S / (each_per_s or np.inf)))
        return Run(fabric, world, EveryPath(watched, world, bucket), turn_ns, bucket)
    bucket = TokenBucket(BURST_PULSES)
    plan = CoveredPaths(watched, world, bucket, TURN_NS, DEAD_AFTER_NS)
    return Run(fabric, world, plan, TURN_NS, bucket)


def false_switches(run: Run, seconds: float) -> FalseFigures:
    """How many paths are given up while nothing is cut."""
    run.go(WARM_NS)
    sent = run.world.sent
    switches = len(run.go(round(seconds * 1e9)))
    return FalseFigures(len(run.fabric.watched), seconds, switches, (run.world.sent - sent) / seconds)


def cut_cables(run: Run, cuts: int, seed: int) -> CutFigures:
    """Cut cables between switches one after the other, each after a rest."""
    rng = np.random.default_rng(seed + 1)
    world, fabric = run.world, run.fabric
    run.go(WARM_NS)
    sent = world.sent
    run.go(NS_PER_S)
    rate, lasted, more = world.sent - sent, [], 0.0
    for _ in range(cuts):
        run.bucket.fill(np.inf)  # as after some calm seconds
        run.go(int(rng.integers(0, CALM_NS)))
        cable = int(rng.choice(fabric.between_switches(world.active)))
        hit = [row for row in world.active.tolist() if cable in fabric.cables[row]]
        cut_ns, sent = world.now_ns, world.sent
        world.cut(cable)
        given_up = {row: (when_ns - cut_ns) / MS for when_ns, row in run.go(100 * MS)}
        more = max(more, world.sent - sent - rate / 10)
        given_up |= {row: (when_ns - cut_ns) / MS for when_ns, row in run.go(DARK_NS - 100 * MS)}
        lasted += [given_up.get(row, np.inf) for row in hit]
        world.heal()
        run.go(CALM_NS)
    found = np.sort(lasted)
    p50, p99 = (float(found[int(np.ceil(q * len(found))) - 1]) for q in (0.5, 0.99))
    return CutFigures(len(fabric.watched), cuts, len(found), p50, p99, float(found[-1]), float(rate), more)
