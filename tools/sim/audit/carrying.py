"""Fabrics in arithmetic that carry flows: each gets its fair share of what its links carry (max-min)."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from manager.audit.throughput.course import Course, Round
from manager.audit.throughput.ways import Ways, ways
from manager.fabric.routes import DirectedLink, PathName, Routes

NIC_BPS = 100e9


@dataclass
class Fabric:
    """Leaves below spines, and with `cores` pods of those below cores; by default all links as fast as NICs.

    Attributes:
        degree: peers of each NIC whose paths are known.
        uplink_bps: of links between switches.
        slow_bps: what other links carry, by their ends.
        slow_ways_bps: what paths over these nodes carry, whatever their links do.
        noise: flows carry less by up to this share.
        accidents: such a share of flows carry half, once.
    """

    leaves: int = 4
    spines: int = 4
    hosts: int = 4
    degree: int = 10
    pods: int = 1
    cores: int = 0
    uplink_bps: float = NIC_BPS
    slow_bps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    slow_ways_bps: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    noise: float = 0.04
    accidents: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self.nics = [f"h{i}/nic0" for i in range(self.pods * self.leaves * self.hosts)]
        self.owners = {f"10.0.{i >> 8}.{i & 255}": nic for i, nic in enumerate(self.nics)}
        self.routes = self._routes()

    def _routes(self) -> Routes:
        numbers: dict[DirectedLink, int] = {}
        paths = {}
        count = len(self.nics)
        address = {nic: one for one, nic in self.owners.items()}
        for a in range(count):
            others = [b for b in range(count) if b != a]
            for b in self._draw.sample(others, min(self.degree, len(others))):
                for sport in range(50_000, 50_000 + 4 * self.spines * max(1, self.cores)):
                    way = [DirectedLink(*ends) for ends in pairwise(self._nodes(a, b))]
                    name = PathName(self.nics[a], address[self.nics[b]], sport)
                    paths[name] = tuple(numbers.setdefault(link, len(numbers)) for link in way)
        return Routes(1, tuple(numbers), paths)

    def _nodes(self, a: int, b: int) -> list[str]:
        leaf_a, leaf_b = a // self.hosts, b // self.hosts
        if leaf_a == leaf_b:
            return [self.nics[a], f"l{leaf_a}", self.nics[b]]
        pod_a, pod_b = leaf_a // self.leaves, leaf_b // self.leaves
        spine = self._draw.randrange(self.spines)
        up = [self.nics[a], f"l{leaf_a}", f"p{pod_a}s{spine}"]
        down = [f"l{leaf_b}", self.nics[b]]
        if pod_a == pod_b:
            return [*up, *down]
        core, other = self._draw.randrange(self.cores), self._draw.randrange(self.spines)
        return [*up, f"c{core}", f"p{pod_b}s{other}", *down]

    def ways(self, seed: int = 1, without: Sequence[str] = ()) -> Ways:
        """The paths that are known, but those of some NICs; which of like ones are taken is drawn by the seed."""
        return ways(self.routes, self.owners, [nic for nic in self.nics if nic not in without], seed)

    def capacity(self, link: DirectedLink) -> float:
        """Of a link one way, in bit/s."""
        default = NIC_BPS if "/" in link.a + link.b else self.uplink_bps
        return self.slow_bps.get((link.a, link.b), default)

    def carry(self, known: Ways, rows: Sequence[int]) -> dict[int, float]:
        """What flows over paths get at the same time, in bit/s: water-filling."""
        got = self._shared(known, rows)
        held = self._held(known, got)
        return {row: bps * self._luck() * (0.6 if row in held else 1) for row, bps in got.items()}

    def _shared(self, known: Ways, rows: Sequence[int]) -> dict[int, float]:
        """A path's own bound is a link of its own."""
        bounds, links = self._bounds(known, rows)
        got: dict[int, float] = {}
        left = set(rows)
        while left:
            users = Counter(link for row in left for link in links[row])
            tightest = min(users, key=lambda link: bounds[link] / users[link])
            share = bounds[tightest] / users[tightest]
            done = {row for row in left if tightest in links[row]}
            got |= dict.fromkeys(done, share)
            for link in (link for row in done for link in links[row]):
                bounds[link] = max(bounds[link] - share, 0.0)
            left -= done
        return got

    def _bounds(
        self, known: Ways, rows: Sequence[int]
    ) -> tuple[dict[object, float], dict[int, list[object]]]:
        """What each link carries, and which each path crosses."""
        bounds: dict[object, float] = {i: self.capacity(link) for i, link in enumerate(known.links)}
        links: dict[int, list[object]] = {row: list(known.links_of(row)) for row in rows}
        for row in rows:
            nodes = tuple(known.links[link].b for link in known.links_of(row))
            for way, bps in self.slow_ways_bps.items():
                if way == nodes[: len(way)]:
                    links[row].append(way)
                    bounds[way] = bps
        return bounds, links

    def _held(self, known: Ways, got: Mapping[int, float]) -> set[int]:
        """Flows whose acknowledgements wait in a NIC's slow link that another flow fills."""
        full = {
            known.links[link]
            for row, bps in got.items()
            for link in known.links_of(row)
            if tuple(known.links[link]) in self.slow_bps and bps >= 0.99 * self.capacity(known.links[link])
        }
        back = {row: [known.links[known.links_of(row)[end]] for end in (0, -1)] for row in got}
        return {row for row, ends in back.items() if any(DirectedLink(b, a) in full for a, b in ends)}

    def _luck(self) -> float:
        return (1 - self._draw.random() * self.noise) * (0.5 if self._draw.random() < self.accidents else 1)


def run(
    fabric: Fabric,
    seed: int = 1,
    *,
    without: Sequence[str] = (),
    speeds: Mapping[str, int] | None = None,
    told: Callable[[dict[int, float]], dict[int, float]] = lambda bps: bps,
) -> tuple[Course, list[Round]]:
    """All rounds of a course over a fabric; `told` is what of a round's rates is told."""
    course = Course(fabric.ways(seed, without), speeds or {}, seed)
    rounds, done = course.rounds(), []
    with suppress(StopIteration):
        now = next(rounds)
        while True:
            done.append(now)
            now = rounds.send(told(fabric.carry(course.ways, now.rows)))
    return course, done
