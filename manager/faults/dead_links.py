"""Which links nothing should be sent over: those whose fault is localised, and for a while those that are suspected.

Probes localise a fault within seconds. Dataplanes give paths up sooner, but do not know which link is at fault: a path
that was given up crosses a link that does not work; every path that is watched and was not given up crosses
only links that do. What is left is suspected: for a few seconds, longer with each relapse, as the analysis of probes
is to confirm it by then. A liar can thus discredit only links that nobody else's packets cross.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from manager.fabric.places import link_tiers
from manager.fabric.routes import DirectedLink, PathName, Routes, is_between_switches
from manager.faults.finding import Findings, cable

DEAD_LOSS = 0.5
"""A link that loses as much carries nothing of use."""

SURE = 0.8
"""Confidence in a link that is lossy, to send nothing over it."""

SETTLE_S = 0.15
"""Before that, others whose packets cross the same link may not have said so yet."""

SUSPECT_S = 3.0
SUSPECT_MOST_S = 60.0
FORGET_S = 600.0
MOST_DOWN = 65_536


@dataclass(kw_only=True)
class Suspicion:
    """That a link does not work: since when, until when, for how long at first, and whether probes have confirmed it."""

    since_s: float
    until_s: float
    lasts_s: float
    confirmed: bool = False


class Suspicions:
    """Links that are suspected for a while, twice as long with each relapse.

    Args:
        first_s, most_s: for how long at first, and at most.
        forget_s: one that has been well for so long begins anew.
    """

    def __init__(self, first_s: float, most_s: float, forget_s: float) -> None:
        self.known: dict[DirectedLink, Suspicion] = {}
        self._first_s, self._most_s, self._forget_s = first_s, most_s, forget_s

    def suspect(self, link: DirectedLink, now_s: float) -> None:
        """Something speaks against a link now."""
        before = self.known.get(link)
        if before is not None and now_s < before.until_s:
            return
        lasts_s = self._first_s if before is None else min(2 * before.lasts_s, self._most_s)
        self.known[link] = Suspicion(since_s=now_s, until_s=now_s + lasts_s, lasts_s=lasts_s)

    def now(self, now_s: float) -> set[DirectedLink]:
        """Those that are suspected; those that have been well for long are forgotten."""
        for link in [link for link, one in self.known.items() if now_s - one.until_s >= self._forget_s]:
            del self.known[link]
        return {link for link, one in self.known.items() if now_s < one.until_s}


def avoided(
    findings: Findings,
    elsewhere: Collection[DirectedLink],
    routes: Routes,
    losing: Collection[DirectedLink] = (),
) -> set[DirectedLink]:
    """Links that are known to be dead, what may be one of these, and lossy ones that others can stand in for.

    Of a host whose paths are traced while a link is silent, those over it are known up to there only. They look like ways
    round it, with nothing on them.

    Args:
        findings: this manager's.
        elsewhere: links that other managers found to be dead.
        routes: the known paths.
        losing: links that lose packets of jobs though no finding says so.
    """
    dead = localised(findings) | set(elsewhere)
    return dead | hiding(routes, dead) | lossy(findings, routes, dead, losing)


def lossy(
    findings: Findings, routes: Routes, dead: Collection[DirectedLink], losing: Collection[DirectedLink] = ()
) -> set[DirectedLink]:
    """Links between switches that lose some of what crosses them: a queue pair sends all again that was under way behind a lost packet.

    The worst first, those of findings before others, and so many at most that half of each switch's links upwards are left.
    """
    sure = [finding for finding in findings.of("lossy") if finding.confidence >= SURE]
    named = [set(finding.links) for finding in sorted(sure, key=lambda each: -each.loss)]
    named += [set(cable(link).links) for link in sorted(losing)]
    if not named:
        return set()
    lower = _lower_ends(routes)
    has, lacks = Counter(lower.values()), Counter(lower[link] for link in lower.keys() & set(dead))
    found: set[DirectedLink] = set()
    for links in (each & lower.keys() for each in named):
        more = Counter(lower[link] for link in links - found)
        if all(2 * (lacks[switch] + more[switch]) <= has[switch] for switch in more):
            found |= links
            lacks += more
    return found


def _lower_ends(routes: Routes) -> dict[DirectedLink, str]:
    """Of each link between switches, the one that is nearer to NICs."""
    tiers = zip(routes.links, *link_tiers(routes.links), strict=True)
    return {link: link.a if src < dst else link.b for link, src, dst in tiers if is_between_switches(link)}


def localised(findings: Findings) -> set[DirectedLink]:
    """Links that findings name, those included that cannot be told from them."""
    dead: set[DirectedLink] = set()
    for finding in findings.current.values():
        if is_dead(finding.kind, finding.loss):
            dead.update(finding.links)
    return dead


def kinds(findings: Findings, losing: Iterable[DirectedLink] = ()) -> dict[DirectedLink, str]:
    """What is found of links, for people who ask why nothing is sent over one; of several findings the earliest.

    Args:
        findings: this manager's.
        losing: as `avoided` has them.
    """
    found: dict[DirectedLink, str] = {}
    for finding in findings.current.values():
        if finding.kind == "lossy" or is_dead(finding.kind, finding.loss):
            for link in finding.links:
                found.setdefault(link, f"is found {finding.kind.replace('_', ' ')}")
    for link in losing:
        for way in cable(link).links:
            found.setdefault(way, "loses packets of jobs")
    return found


def hiding(routes: Routes, links: Iterable[DirectedLink]) -> set[DirectedLink]:
    """Links that stand for what some path crosses where nobody answers, and that may be some of these.

    So it is where the path lies next to a switch at either end. Where it may be of more than two links, so it is too where
    one of these is above those that hosts hang from.
    """
    between = [link for link in links if is_between_switches(link)]
    if not between or not routes.hidden:
        return set()
    ends = {node for link in between for node in link}
    leaves = {*routes.first_switch.values(), *routes.last_switch.values()}
    is_above = any(leaves.isdisjoint(link) for link in between)
    return {
        link
        for link, gap in routes.hidden.items()
        if (is_above and gap.links != 2) or not ends.isdisjoint((gap.a, gap.b))
    }


def is_dead(kind: str, loss: float) -> bool:
    """Whether nothing should be sent over what such a finding names."""
    return kind in ("dead", "silent") or loss >= DEAD_LOSS


class DeadLinks:
    """Paths given up, and the links that explain them. Times are seconds of the manager's monotonic clock."""

    def __init__(self) -> None:
        self._down: dict[PathName, float] = {}
        self._links = Suspicions(SUSPECT_S, SUSPECT_MOST_S, FORGET_S)

    def hear_down(self, path: PathName, now_s: float) -> None:
        """A dataplane gave up a path."""
        if len(self._down) < MOST_DOWN:
            self._down.setdefault(path, now_s)

    def hear_up(self, path: PathName, routes: Routes) -> None:
        """A dataplane uses a path again: none of its links is dead."""
        self._down.pop(path, None)
        for number in routes.paths.get(path, ()):
            suspicion = self._links.known.get(routes.links[number])
            if suspicion is not None:
                suspicion.until_s = suspicion.since_s

    def settled(self, now_s: float) -> bool:
        """Whether a path was given up long enough ago to conclude something from it."""
        return any(now_s - since_s >= SETTLE_S for since_s in self._down.values())

    def find(
        self,
        routes: Routes,
        watched: Iterable[PathName],
        localised: Collection[DirectedLink],
        now_s: float,
    ) -> set[DirectedLink]:
        """The links not to use now.

        Args:
            routes: the known paths.
            watched: paths that dataplanes watch now.
            localised: links that are known to be dead, from `avoided`; of these nobody decides here when they heal.
            now_s: the time.
        """
        if self.settled(now_s):
            alive = self._alive(routes, watched)
            for path in [path for path, since_s in self._down.items() if now_s - since_s >= SETTLE_S]:
                del self._down[path]
                for number in set(routes.paths.get(path, ())) - alive:
                    self._links.suspect(routes.links[number], now_s)
        self._review(localised, now_s)
        return self._links.now(now_s) | set(localised)

    def _alive(self, routes: Routes, watched: Iterable[PathName]) -> set[int]:
        """The links of paths that are watched and were not given up."""
        alive: set[int] = set()
        for path in watched:
            if path not in self._down:
                alive.update(routes.paths.get(path, ()))
        return alive

    def _review(self, localised: Collection[DirectedLink], now_s: float) -> None:
        for link, found in self._links.known.items():
            if link in localised:
                found.confirmed = True
            elif found.confirmed:
                found.until_s = min(found.until_s, now_s)
