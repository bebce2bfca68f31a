"""Single faults at random places of random fabrics, found by the manager's own code or not.

Each case is a fabric of another size with another load, and one fault. What counts is whether the first finding names
the faulty link within two seconds, and whether anything else is named. Where the probes cannot tell links apart (a
fabric of two leaves), the link has to be among those that the finding names as equally likely.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cwdp.agent.probing.windows import MOST_SUMMED_NS, together
from cwdp.shared.bus.messages import WindowReport
from cwdp.shared.bus.records import WINDOW_NS, WINDOW_ROW
from cwdp.shared.bus.windows import MEASURED, PATH, window_report
from manager.fabric.routes import DirectedLink, Routes
from manager.faults.finding import Finding
from manager.faults.link_watch import LinkWatch
from manager.hosts.members import Members
from manager.paths.told import ToldPaths
from tools.clocks import ClockKind
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.fleet.window_clocks import WINDOW_S, WindowClocks

START_S = 1_000.0
LATE_S = 0.4
"""From the end of a window until the manager has it: probes may be answered for 100 ms, agents speak every 250 ms."""

WARM_WINDOWS = 45
LOOK_WINDOWS = 26
IN_TIME_S = 2.0


@dataclass(frozen=True)
class Case:
    """What was done and what was found.

    Attributes:
        shape: of the fabric.
        kind, place, loss: of the fault.
        named: the subject of the first finding, with those as likely; empty for none.
        right: whether the fault is among them; alone, where `alone`.
        took_s: from the start of the fault until the finding.
        others: further findings.
    """

    shape: Shape
    kind: str
    place: str
    loss: float
    named: tuple[str, ...]
    right: bool
    alone: bool
    took_s: float
    others: int


class Bench:
    """A manager's eyes on a simulated fabric, as fast as they can be worked.

    Args:
        fabric: what is watched.
        at_once: windows that agents tell of at once; of several in sums, as they do in a large fleet.
    """

    def __init__(self, fabric: LeafSpine, at_once: int = 1) -> None:
        self.fabric, self._at_once = fabric, at_once
        self.events: list[tuple[str, str]] = []
        self.members = Members()
        for hello in fabric.hellos:
            self.members.hear(hello, START_S)
        self.watch = LinkWatch(self.members, self._note)
        self.watch.queues_every = at_once
        self._number = round(START_S / WINDOW_S)
        self._untold: list[WindowReport] = []
        self._told_paths = ToldPaths()

    @property
    def time_s(self) -> float:
        """When the next window begins."""
        return self._number * WINDOW_S

    def run(self, windows: int, trouble: Trouble) -> Iterator[float]:
        """Window after window; yields when the manager has worked each of them off."""
        for _ in range(windows):
            now_s = (self._number + 1) * WINDOW_S + LATE_S
            now_ns = round(now_s * 1e9)
            for report in self._said(trouble):
                self.watch.hear(report, now_ns)
            due = self.watch.due(self.routes)
            if due is not None:
                self.watch.take(due.make(), now_s)
            changed = self.fabric.changed(now_ns // WINDOW_NS)
            since_ns = {host: round(window * WINDOW_NS) for host, window in changed.items()}
            self.watch.doubt_clocks(since_ns, {}, now_ns)
            if self._number % self._at_once == 0:
                self.watch.step(now_s, now_ns, ())
            self.watch.faults.follow_clocks(self.fabric.set_aside(self._number), now_s)
            self._number += 1
            yield now_s

    def _said(self, trouble: Trouble) -> Iterable[WindowReport]:
        """What agents say once a window is over."""
        said = self.fabric.window(self._number, trouble)
        if self._at_once == 1:
            return said
        self._untold += said
        if self._number % self._at_once:
            return []
        rows = defaultdict[tuple[str, str], list[np.ndarray]](list)
        for report in self._untold:
            rows[report.host, report.nics[0]].append(_rows_of(report, self._told_paths))
        self._untold = []
        return [
            window_report(host, [nic], together(np.concatenate(each), MOST_SUMMED_NS))
            for (host, nic), each in rows.items()
        ]

    @property
    def routes(self) -> Routes:
        """What discovery knows."""
        return self.fabric.routes

    def _note(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        del host, nic
        self.events.append((kind, detail))


def _rows_of(report: WindowReport, told: ToldPaths) -> np.ndarray:
    """WINDOW_ROWs of a report that tells its paths itself."""
    read = told.read(report)
    assert read is not None
    table, placed = read
    rows = np.zeros(len(placed), WINDOW_ROW)
    for names, of in ((PATH, table.paths[placed["path"]]), (MEASURED, placed)):
        for name in names:
            rows[name] = of[name]
    return rows


def random_shape(
    rng: np.random.Generator,
    *,
    pairs_per_s: float = 500.0,
    least_leaves: int = 3,
    most_leaves: int = 6,
    pods: int = 1,
    rails: int = 0,
) -> Shape:
    """A fabric of some size; with rails, as many leaves are one group of a pod."""
    groups = int(rng.integers(least_leaves, most_leaves + 1))
    return Shape(
        leaves=max(1, rails) * groups,
        spines=int(rng.integers(2, 9)),
        hosts_per_leaf=int(rng.integers(2, 7)),
        pairs_per_s=pairs_per_s,
        load=float(rng.choice([0.0, 0.4, 0.8])),
        pods=pods,
        cores=int(rng.integers(2, 9)) if pods > 1 else 0,
        rails=rails,
    )


def random_case(rng: np.random.Generator, *, at_once: int = 1, **sizes: Any) -> Case:
    """One fault at a random place of a fabric of `random_shape`; `at_once` as in `Bench`."""
    shape = random_shape(rng, **sizes)
    bench = Bench(LeafSpine(shape, rng), at_once)
    for _ in bench.run(WARM_WINDOWS + int(rng.integers(0, 10)), Trouble()):
        pass
    cables = bench.fabric.cables()
    both = cables[rng.integers(len(cables))]
    silent = rng.random() < 0.4
    loss = 1.0 if silent else float(np.exp(rng.uniform(np.log(0.005), 0.0)))
    ways = both if rng.random() < 0.5 else (both[rng.integers(2)],)
    trouble = Trouble(loss=dict.fromkeys(ways, loss))
    before, began_s = len(bench.watch.findings.current), bench.time_s
    assert not before, bench.events
    took_s, first = np.inf, None
    for now_s in bench.run(LOOK_WINDOWS, trouble):
        if first is None and bench.watch.findings.current:
            first = next(iter(bench.watch.findings.current.values()))
            took_s = now_s - began_s
    links = {bench.fabric.routes.links[i] for i in ways}
    named = () if first is None else tuple(subject.name for subject in (first.subject, *first.also))
    return Case(
        shape=shape,
        kind="silent" if silent else "lossy",
        place=" + ".join(f"{a} > {b}" for a, b in links),
        loss=loss,
        named=named,
        right=first is not None and _is_right(first, links),
        alone=len(named) == 1,
        took_s=float(took_s),
        others=len(bench.watch.findings.current) + len(bench.watch.findings.past) - len(named[:1]),
    )


def _is_right(finding: Finding, links: set[DirectedLink]) -> bool:
    """Whether a finding names the faulty link, one way or both, and no switch or host instead."""
    for subject in (finding.subject, *finding.also):
        if subject.kind in ("link", "direction") and links <= set(subject.links):
            return True
    return False


def false_alarms(
    seconds: float,
    shape: Shape,
    trouble: Trouble,
    rng: np.random.Generator,
    clocks: WindowClocks | None = None,
) -> list[tuple[str, str]]:
    """The events of a fabric with no fault at any place of its own."""
    bench = Bench(LeafSpine(shape, rng, clocks))
    for _ in bench.run(round(seconds / WINDOW_S), trouble):
        pass
    return bench.events


@dataclass(frozen=True)
class Summary:
    """What came of many cases.

    Attributes:
        right: whose first finding names the faulty link.
        alone: of those, how many name nothing beside it.
        in_time: right, within two seconds.
        with_others: with further findings.
        p50_s, p99_s: from the fault to the finding, where it was right.
    """

    cases: int
    right: int
    alone: int
    in_time: int
    with_others: int
    p50_s: float
    p99_s: float


def many_cases(cases: int, seed: int, **sizes: Any) -> tuple[Summary, list[Case]]:
    """Random cases, each of a seed of its own, and those that went wrong; `sizes` are those of `random_shape`."""
    done = [random_case(np.random.default_rng((seed, i)), **sizes) for i in range(cases)]
    right = [case for case in done if case.right]
    in_time = [case for case in right if case.took_s <= IN_TIME_S]
    took_s = [case.took_s for case in right] or [np.nan]
    p50_s, p99_s = (round(float(np.quantile(took_s, q)), 2) for q in (0.5, 0.99))
    summary = Summary(
        cases=cases,
        right=len(right),
        alone=sum(case.alone for case in right),
        in_time=len(in_time),
        with_others=sum(case.others > 0 for case in done),
        p50_s=p50_s,
        p99_s=p99_s,
    )
    return summary, [case for case in done if case.took_s > IN_TIME_S or not case.right or case.others]


@dataclass(frozen=True)
class Alarms:
    """What a fabric without a fault was found to have.

    Attributes:
        everywhere: share of all probes that is lost.
        alarms: findings of links and hosts.
        clocks_wrong: findings that a host's clock is wrong, which one that steps is for a moment.
    """

    leaves: int
    spines: int
    hosts_per_leaf: int
    load: float
    everywhere: float
    seconds: float
    clocks: ClockKind
    alarms: int
    clocks_wrong: int


def watch_well(
    seconds: float, seed: int, *, load: float, everywhere: float, kind: ClockKind = "steady"
) -> Alarms:
    """A random fabric in which nothing is wrong; steady clocks are off by nothing that would show."""
    rng = np.random.default_rng(seed)
    shape = Shape(
        leaves=int(rng.integers(2, 5)),
        spines=int(rng.integers(2, 6)),
        hosts_per_leaf=int(rng.integers(2, 5)),
        load=load,
    )
    hosts = shape.leaves * shape.hosts_per_leaf
    windows = round(seconds / WINDOW_S)
    clocks = None if kind == "steady" else WindowClocks.of_fleet(kind, hosts, windows, seed)
    events = false_alarms(seconds, shape, Trouble(everywhere=everywhere), rng, clocks)
    told = [event for event, _ in events if not event.endswith(("_over", "_located"))]
    wrong = sum("clock" in event for event in told)
    return Alarms(
        shape.leaves,
        shape.spines,
        shape.hosts_per_leaf,
        load,
        everywhere,
        seconds,
        kind,
        len(told) - wrong,
        wrong,
    )
