"""Follows why jobs are slow: one diagnosis per cause, with an event at its start and one at its end. No I/O."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from manager.causes.avoiding import links_to_avoid
from manager.causes.cause import Cause, Links, with_strays
from manager.causes.processors import Processors
from manager.causes.ranks import Calls, told
from manager.causes.rules import Case, NotReady, explain
from manager.causes.standing import standing_causes
from manager.causes.usual import Usual
from manager.collectives.store import Collective, CollectiveStore
from manager.fabric.routes import DirectedLink
from manager.faults.dead_links import Suspicions
from manager.faults.watch import FABRIC, Note
from manager.jobs.flows import Flow
from manager.jobs.inference import Job

SEEN_S, UNKNOWN_SEEN_S = 1.0, 7.5
"""For so long looks in a row must say so before a cause is told that one look may see by chance; of one that no rule knows, which others may turn out to be."""

GONE_S = 12.5
HISTORY = 200
LATELY_S = 20.0
MOST_JOBS, MOST_CALLS = 64, 128
"""Whose ranks tell, and calls of each: the latest."""


FAULTS = ("link", "nic", "host")
"""Kinds of causes for which the calls of a job may stand still though all ranks have begun them."""

LinksOf = Callable[[Iterable[Flow]], Links]
Key = tuple[str, str]
"""The kind of a cause, and its subject, or the jobs between which it is."""

Found = dict[Key, tuple[Cause, set[str]]]
"""Causes, and the names of the jobs that suffer from each."""

NOTHING: Mapping[Flow, int] = {}

Look = Callable[[], Found]


def _none(_now_s: float) -> NotReady:
    return {}


@dataclass
class Acted:
    """What the planner has done for a job that is slow, and what came of it.

    Attributes:
        moved: how many of its queue pairs it has moved, or sent round something.
        before_ns: how long an iteration took then, the median of the last ones; None where that is not known.
        after_ns: how long it takes since, or took when the cause was over.
    """

    moved: int
    before_ns: float | None
    after_ns: float | None


@dataclass(kw_only=True)
class Diagnosis:
    """A cause that jobs suffer from, or did.

    Attributes:
        number: names it; 0 before it is told.
        cause: as it was seen last.
        jobs: their names.
        start_s, told_s, end_s: the manager's wall clock, when it was seen first, when it was told, and when it was over;
            None before that.
        seen_s: when it was seen first, by the monotonic clock.
        missed_s: since when it is not seen, by the same; None while it is.
        acted: what the planner has done for each of the jobs since it was seen first.
    """

    cause: Cause
    jobs: set[str]
    start_s: float
    seen_s: float
    number: int = 0
    told_s: float | None = None
    end_s: float | None = None
    missed_s: float | None = None
    acted: dict[str, Acted] = field(default_factory=dict)


class _Known(NamedTuple):
    """What is known when causes are looked for: jobs by name, what an iteration of each took at its best, the rest as in `Case`."""

    jobs: Mapping[str, Job]
    usual_ns: Mapping[str, float | None]
    links_of: LinksOf
    waits: Mapping[str, float]
    calls: Sequence[Collective]
    timeline_ns: int | None
    strays: Mapping[Flow, int]
    not_ready: NotReady


@dataclass
class CauseWatch:
    """The causes of one fleet.

    Args:
        note: keeps an event.
        links_now: keeps what is known now; what it returns tells of the links that flows cross, in any thread.
        calls: what ranks tell of theirs.
        not_ready: RNR NAKs of late, as `Case` has them, at a moment of the manager's clock.

    Attributes:
        processors: what hosts tell of theirs.
        current: those that hold and are told, the oldest first.
        past: those that held, the newest last.
    """

    note: Note
    links_now: Callable[[], LinksOf]
    calls: CollectiveStore
    not_ready: Callable[[float], NotReady] = _none
    processors: Processors = field(default_factory=Processors)
    past: deque[Diagnosis] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _usual: Usual = field(default_factory=Usual)
    _open: dict[Key, Diagnosis] = field(default_factory=dict)
    _lately: dict[Flow, dict[DirectedLink, float]] = field(default_factory=dict)
    _avoided: Suspicions = field(default_factory=links_to_avoid)
    _jobs: Mapping[str, Job] = field(default_factory=dict)
    _last: int = 0

    @property
    def current(self) -> list[Diagnosis]:
        """In the order in which they were told."""
        return sorted((each for each in self._open.values() if each.number), key=lambda each: each.number)

    def usual_ns(self, job: Job) -> float | None:
        """What an iteration of a job took at its best of late; None where that is not known."""
        return self._usual.of(job)

    def avoided(self, now_s: float) -> set[DirectedLink]:
        """Links that the planner is to send nothing over where there are others, by the manager's monotonic clock."""
        return self._avoided.now(now_s)

    def hear_moves(self, flows: Iterable[Flow]) -> None:
        """The planner has moved some queue pairs."""
        flows = set(flows)
        for known in self._open.values():
            for name in known.jobs & self._jobs.keys():
                job = self._jobs[name]
                count = len(flows.intersection(job.flows))
                if count:
                    took_ns = job.lately.recent_ns
                    known.acted.setdefault(name, Acted(0, took_ns, took_ns)).moved += count

    def due(
        self,
        jobs: Mapping[str, Job],
        now_s: float,
        timeline_ns: int | None = None,
        strays: Mapping[Flow, int] = NOTHING,
    ) -> Look:
        """What sees why jobs are slow now; any thread may run it, one at a time, for `take`.

        Args:
            jobs: by name.
            now_s: the manager's monotonic clock.
            timeline_ns: the timeline; None while it is not known.
            strays: queue pairs of none of these jobs, and the packets that each sent of late.
        """
        self._usual.see(jobs.values(), now_s)
        usual_ns = {name: self._usual.of(job) for name, job in jobs.items()}
        waits = self.processors.shares()
        latest = self.calls.latest(MOST_JOBS, MOST_CALLS)
        calls = [call.copy() for _, those in latest for call in those]
        self._jobs = dict(jobs)
        links_of, not_ready = self.links_now(), self.not_ready(now_s)
        known = _Known(self._jobs, usual_ns, links_of, waits, calls, timeline_ns, strays, not_ready)
        return partial(self._look, known, now_s)

    def take(self, found: Found, now_s: float) -> None:
        """These were seen.

        Args:
            found: by a look.
            now_s: the manager's monotonic clock at that look.
        """
        seen: set[Key] = set()
        for key, (cause, names) in found.items():
            at = self._known_as(key, cause)
            seen.add(at)
            known = self._open.setdefault(
                at, Diagnosis(cause=cause, jobs=names, start_s=time.time(), seen_s=now_s)
            )
            known.cause, known.missed_s = cause, None
            known.jobs |= names
            self._follow(known.acted)
            if not known.number and now_s - known.seen_s >= _lasts_s(cause):
                self._last += 1
                known.number, known.told_s = self._last, time.time()
                self.note(FABRIC, "job_slow", described(known))
            for link in cause.to_avoid if known.number else ():
                self._avoided.suspect(link, now_s)
        for key in [key for key in self._open if key not in seen]:
            self._miss(key, now_s)

    def _known_as(self, key: Key, cause: Cause) -> Key:
        """Jobs that get in each other's way are one cause while more or fewer of them are known."""
        if key in self._open or not cause.between:
            return key
        mine = set(cause.between)
        alike = (
            (before, set(known.cause.between))
            for before, known in self._open.items()
            if known.cause.kind == cause.kind and known.cause.between
        )
        return next((before for before, others in alike if mine < others or others < mine), key)

    def _miss(self, key: Key, now_s: float) -> None:
        known = self._open[key]
        known.missed_s = now_s if known.missed_s is None else known.missed_s
        self._follow(known.acted)
        is_gone = now_s - known.missed_s >= GONE_S
        if not known.number or is_gone:
            del self._open[key]
        if known.number and is_gone:
            known.end_s = time.time()
            self.past.append(known)
            self.note(FABRIC, "job_slow_over", described(known))

    def _follow(self, acted: Mapping[str, Acted]) -> None:
        """Take in how long iterations take since the planner acted."""
        for name in acted.keys() & self._jobs.keys():
            acted[name].after_ns = self._jobs[name].lately.recent_ns

    def _look(self, known: "_Known", now_s: float) -> Found:
        flows = (flow for job in known.jobs.values() for flow in job.flows)
        links = known.links_of(chain(flows, known.strays))
        links = self._remembering(with_strays(links, known.strays), now_s)
        found: Found = {}
        calls = Calls(known.calls)
        for name, job in known.jobs.items():
            others = [each for each in known.jobs.items() if each[0] != name]
            ranks = told(job, calls)
            usual_ns = known.usual_ns[name]
            cause = explain(Case(name, job, usual_ns, links, others, known.waits, known.not_ready, ranks))
            if cause is not None:
                _, names = found.setdefault(_key(cause), (cause, set()))
                names.add(name)
        explained = {name for cause, names in found.values() if cause.kind in FAULTS for name in names}
        for cause, name, names_ranks in standing_causes(known.calls, known.jobs, known.timeline_ns):
            if names_ranks or name not in explained:
                found[_key(cause)] = cause, {name}
        return found

    def _remembering(self, links: Links, now_s: float) -> Links:
        """The same with the links that flows have crossed of late."""
        for flow, numbers in links.of.items():
            crossed = self._lately.setdefault(flow, {})
            crossed.update(dict.fromkeys((links.names[i] for i in numbers), now_s))
        for flow, crossed in list(self._lately.items()):
            kept = {link: at_s for link, at_s in crossed.items() if at_s > now_s - LATELY_S}
            if kept:
                self._lately[flow] = kept
            else:
                del self._lately[flow]
        return replace(links, lately={flow: frozenset(crossed) for flow, crossed in self._lately.items()})


def _lasts_s(cause: Cause) -> float:
    """For how long looks in a row must say so before a cause is told."""
    if cause.is_repeated:
        return 0.0
    return UNKNOWN_SEEN_S if cause.kind == "unknown" else SEEN_S


def _key(cause: Cause) -> Key:
    return cause.kind, ", ".join(cause.between) or cause.subject


def described(found: Diagnosis) -> str:
    """A diagnosis for people, in a line."""
    cause = found.cause
    costs = f", costs {cause.costs_ns / 1e6:.1f} ms an iteration" if cause.costs_ns > 0 else ""
    said = (*cause.evidence, *map(_acted, sorted(found.acted.items())))
    return f"{', '.join(sorted(found.jobs))}: {cause.kind}, {cause.subject}{costs}; {'; '.join(said)}"


def _acted(of_job: tuple[str, Acted]) -> str:
    name, acted = of_job
    times = (acted.before_ns, acted.after_ns)
    before, after = ("?" if ns is None else f"{ns / 1e6:.1f} ms" for ns in times)
    return f"{acted.moved} queue pairs of {name} moved meanwhile: an iteration took {before} before, {after} after"
