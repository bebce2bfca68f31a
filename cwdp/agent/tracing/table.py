"""Which path is traced when, and what has come of it. No I/O: time is an argument, probes are given out to be sent.

A path is traced in rounds: one probe for each hop limit, again for those that went unanswered, and what was found is
told when nothing more can come. A hop that misses a round keeps its name as long as no other hop of the path has
changed: switches limit the rate of their answers, and a dead link answers nothing.
"""

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe, QuoteKey, build, quote_key
from cwdp.agent.tracing.rounds import Round

PROBES_PER_S = 200.0
BURST = 20.0
MOST_ROUNDS = 128
RETRACE_S = 10.0
"""On the average: at random from 0 to twice that, so that paths that were traced at one time are spread again."""
TELL_AGAIN_S = 30.0
AGAIN_S = 1.0
"""When a round missed hops that had answered before: routing may be about to change."""
MOST_AGAIN = 4
SPREAD_S = 3.0
"""At least so long between two times that one path's news makes all paths of its NIC due."""
EXTENT_AGE_S = 60.0
GIVE_UP_ROUNDS = 2
DROP_SILENT_ROUNDS = 60
ASK_END_S = 1.5
SEARCH_WAIT_S = 0.2
"""One path of a pair looks for the end, the others wait: a host answers few probes a second."""

COUNTERS = (
    "trace_probes",
    "trace_answers",
    "trace_answers_stray",
    "trace_answers_forged",
    "trace_answers_disagreed",
    "trace_rounds",
)

Hops = tuple[str | None, ...]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """What a path's hops are now; as `cwdp.shared.bus.messages.Trace`."""

    path: FlowPath
    hops: Hops
    reached: bool


@dataclass(frozen=True)
class _Extent:
    """How far it is to a destination: it answers at `limit`, or nobody does from there on.

    Where this host was only told, the last switch is at `limit`.
    """

    limit: int
    reached: bool
    since_s: float
    is_told: bool = False


@dataclass(eq=False)
class _Tracked:
    """A path that is kept track of.

    Attributes:
        due_s: when its next round begins; infinite during one.
        told_s: when it was last told of.
        again: how many rounds more may follow soon after ones that missed hops.
        is_end_doubted: the path is new or has changed since the destination was asked by it.
        found: its hops as of the last round.
        silent: how many rounds in a row each hop missed, by hop limit.
    """

    path: FlowPath
    due_s: float = math.inf
    told_s: float = -math.inf
    again: int = 0
    is_end_doubted: bool = True
    found: Found | None = None
    silent: dict[int, int] = field(default_factory=dict)


class TraceTable:
    """All paths of a host that are traced.

    Args:
        port: UDP destination port of the probes.
        rng: spreads the rounds over time.

    Attributes:
        counters: totals by name (`COUNTERS`).
        changes: grows with every change of what is known.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self.changes = 0
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._port = port
        self._rng = rng
        self._tracked: dict[FlowPath, _Tracked] = {}
        self._due: list[tuple[float, int, _Tracked]] = []
        self._ticket = itertools.count()
        self._rounds: dict[FlowPath, Round] = {}
        self._waiting: dict[QuoteKey, tuple[Round, HopProbe]] = {}
        self._extents: dict[Pair, _Extent] = {}
        self._searched: set[Pair] = set()
        self._told: set[Pair] = set()
        self._end_asked_s: dict[Pair, float] = {}
        self._spread_s: dict[str, float] = {}
        self._credit, self._credit_s = 0.0, -math.inf
        self._found: list[Found] = []

    def __len__(self) -> int:
        return len(self._tracked)

    @property
    def known(self) -> list[Found]:
        """The hops of every path that has been traced, as of its last round."""
        return [tracked.found for tracked in self._tracked.values() if tracked.found is not None]

    def want(
        self, paths: Collection[FlowPath], switches: Mapping[Pair, int] | None = None, now_s: float = 0.0
    ) -> None:
        """Keep track of these from now on and of no others; new ones come first.

        Args:
            paths: the paths.
            switches: how many are said to be on the way of some pairs, until that has been looked into here.
            now_s: the time.
        """
        for path in self._tracked.keys() - set(paths):
            del self._tracked[path]
            self.changes += 1
            if path in self._rounds:
                self._forget(self._rounds.pop(path))
        for path in paths:
            if path not in self._tracked:
                self._tracked[path] = _Tracked(path)
                self._schedule(self._tracked[path], -math.inf)
        pairs = {tracked.path.pair for tracked in self._tracked.values()}
        for pair, limit in (switches or {}).items():
            if pair in pairs and pair not in self._told:
                self._told.add(pair)
                self._extents.setdefault(pair, _Extent(limit, reached=False, since_s=now_s, is_told=True))
        self._told &= pairs
        for known in (self._extents, self._end_asked_s):
            for pair in known.keys() - pairs:
                del known[pair]

    def suspect(self, pairs: Collection[Pair], now_s: float) -> None:
        """Something happened to paths of these (interface, destination): they are traced first, then all others."""
        for tracked in self._tracked.values():
            if tracked.path.pair in pairs:
                tracked.again = MOST_AGAIN
                self._schedule(tracked, -math.inf)
        for ifname in {ifname for ifname, _ in pairs}:
            self._spread(ifname, now_s)

    def tell_all(self) -> None:
        """Have everything told again that is known."""
        for tracked in self._tracked.values():
            if tracked.found is not None:
                self._found.append(tracked.found)

    def step(self, now_s: float) -> list[HopProbe]:
        """Probes to be sent now, as many as the rate allows."""
        self._finish(now_s)
        self._credit = min(BURST, self._credit + PROBES_PER_S * max(0.0, now_s - self._credit_s))
        self._credit_s = now_s
        out = []
        while self._credit >= 1.0:
            probe = self._next_probe(now_s)
            if probe is None:
                break
            out.append(probe)
            self._credit -= 1.0
        self.counters["trace_probes"] += len(out)
        return out

    def hear(self, answer: Answer) -> None:
        """Somebody answered."""
        known = self._waiting.get(quote_key(answer.quote))
        if known is None:
            self.counters["trace_answers_stray"] += 1
            return
        current, probe = known
        if not probe.is_quoted_by(answer.quote):
            self.counters["trace_answers_forged"] += 1
        elif current.hear(probe, answer):
            self.counters["trace_answers"] += 1
        else:
            self.counters["trace_answers_disagreed"] += 1

    def take_found(self) -> list[Found]:
        """What is new, other than before, or has not been told for some time."""
        found, self._found = self._found, []
        return found

    def _schedule(self, tracked: _Tracked, due_s: float) -> None:
        tracked.due_s = due_s
        heapq.heappush(self._due, (due_s, next(self._ticket), tracked))

    def _next_probe(self, now_s: float) -> HopProbe | None:
        for current in self._rounds.values():
            limit = current.next_limit(now_s)
            if limit is not None:
                return self._draw(current, limit)
        started = self._start(now_s)
        if started is None:
            return None
        limit = started.next_limit(now_s)
        return None if limit is None else self._draw(started, limit)

    def _draw(self, current: Round, limit: int) -> HopProbe:
        """A probe whose quotes are told from those of all that wait."""
        while True:
            probe = build(current.path, limit, self._port)
            if probe.key not in self._waiting:
                self._waiting[probe.key] = current, probe
                current.probes.append(probe)
                return probe

    def _start(self, now_s: float) -> Round | None:
        """Begin the round of the path that has been due for longest.

        No destination is to be asked by TCP, so for such a path its end is searched for by one of RoCEv2's.
        """
        while self._due and self._due[0][0] <= now_s and len(self._rounds) < MOST_ROUNDS:
            due_s, _, tracked = heapq.heappop(self._due)
            path = tracked.path
            if self._tracked.get(path) is not tracked or due_s != tracked.due_s or path in self._rounds:
                continue
            extent = self._extents.get(path.pair)
            if extent is not None and now_s - extent.since_s > EXTENT_AGE_S:
                extent = None
            asked = path if extent is not None else replace(path, protocol=0)
            is_searched = extent is None and (path.pair in self._searched or asked in self._rounds)
            tracked.due_s = math.inf
            if is_searched or asked != path:
                self._schedule(tracked, now_s + SEARCH_WAIT_S)
            if not is_searched:
                self._rounds[asked] = self._new_round(tracked, asked, extent, now_s)
                return self._rounds[asked]
        return None

    def _new_round(self, tracked: _Tracked, path: FlowPath, extent: _Extent | None, now_s: float) -> Round:
        given_up = {limit for limit, rounds in tracked.silent.items() if rounds >= GIVE_UP_ROUNDS}
        if extent is None:
            self._searched.add(path.pair)
            return Round(path, given_up=given_up)
        if not extent.reached and not extent.is_told:
            given_up.add(extent.limit)
        ask_end = (
            not path.protocol
            and tracked.is_end_doubted
            and now_s - self._end_asked_s.get(path.pair, -math.inf) >= ASK_END_S
        )
        if ask_end:
            self._end_asked_s[path.pair] = now_s
            tracked.is_end_doubted = False
        return Round(path, extent.limit, ends=extent.reached, ask_end=ask_end, given_up=given_up)

    def _finish(self, now_s: float) -> None:
        for path, current in list(self._rounds.items()):
            if current.is_over(now_s):
                del self._rounds[path]
                self._forget(current)
                self.counters["trace_rounds"] += 1
                self._learn_extent(current, now_s)
                if path in self._tracked:
                    self._conclude(self._tracked[path], current, now_s)

    def _forget(self, current: Round) -> None:
        """Let go of a round: later answers are stray."""
        if current.is_search:
            self._searched.discard(current.path.pair)
        for probe in current.probes:
            self._waiting.pop(probe.key, None)

    def _learn_extent(self, current: Round, now_s: float) -> None:
        pair = current.path.pair
        known = self._extents.get(pair)
        if current.is_search or (known is not None and current.extent < known.limit and current.reached):
            self._extents[pair] = _Extent(current.extent, current.reached, now_s)

    def _conclude(self, tracked: _Tracked, current: Round, now_s: float) -> None:
        before = tracked.found
        found = self._settle(tracked, current)
        tracked.found = found
        self.changes += found != before
        missed = any(hop is not None and current.hop(i) is None for i, hop in enumerate(found.hops, start=1))
        tracked.again = max(0, tracked.again - 1) if missed else MOST_AGAIN
        wait_s = AGAIN_S if missed and tracked.again > 0 else RETRACE_S * self._rng.uniform(0.0, 2.0)
        self._schedule(tracked, min(tracked.due_s, now_s + wait_s))
        if found != before or now_s - tracked.told_s >= TELL_AGAIN_S:
            tracked.told_s = now_s
            self._found.append(found)
        if before is not None and contradicts(found.hops, before.hops):
            tracked.is_end_doubted = True
            self._spread(tracked.path.ifname, now_s)

    def _settle(self, tracked: _Tracked, current: Round) -> Found:
        """The path's hops after a round: what it found, and of before what it does not speak against."""
        hops, reached = current.hops(), current.reached
        before = tracked.found
        for limit in range(1, len(hops) + 1):
            heard = current.is_heard(limit)
            tracked.silent[limit] = 0 if heard else min(tracked.silent.get(limit, 0) + 1, DROP_SILENT_ROUNDS)
        if before is not None and not contradicts(hops, before.hops):
            length = len(hops) if reached else max(len(hops), len(before.hops))
            hops = tuple(self._kept(tracked, current, before.hops, limit) for limit in range(1, length + 1))
            reached = reached or (before.reached and length == len(before.hops))
        return Found(tracked.path, hops if reached else _trimmed(hops), reached)

    def _kept(self, tracked: _Tracked, current: Round, before: Hops, limit: int) -> str | None:
        if current.is_heard(limit):
            return current.hop(limit)
        if limit > len(before) or tracked.silent.get(limit, 0) >= DROP_SILENT_ROUNDS:
            return None
        return before[limit - 1]

    def _spread(self, ifname: str, now_s: float) -> None:
        """Make all paths of a NIC due, unless that was done just before."""
        if now_s - self._spread_s.get(ifname, -math.inf) < SPREAD_S:
            return
        self._spread_s[ifname] = now_s
        for tracked in self._tracked.values():
            if tracked.path.ifname == ifname and tracked.due_s > now_s:
                self._schedule(tracked, now_s)


def contradicts(now: Hops, before: Hops) -> bool:
    """Whether some hop is another one than before."""
    return any(a is not None and b is not None and a != b for a, b in zip(now, before, strict=False))


def _trimmed(hops: Hops) -> Hops:
    """Without the silent hops at the end of a path whose end is not known."""
    length = max((i for i, hop in enumerate(hops, start=1) if hop is not None), default=0)
    return hops[:length]
