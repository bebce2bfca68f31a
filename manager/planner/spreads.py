"""How queue pairs that are yet to be connected are to be spread over paths. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Hello, Spread, UdAddress, nic_id
from manager.fabric.routes import DirectedLink, Pair
from manager.planner.candidates import Candidates, Links

MOST_CHOICES = 16
MOST_OF_A_HOST = 4_096

LOOK_S = 5.0
"""Between two looks at what is put on links: hosts are told anew where it has changed."""

LOAD_STEP, LOAD_CALM = 0.25, 0.2
"""Loads are kept in such steps, and kept as they are while they are not off by more than the second."""

LEAST_SHARE, SHARE_STEP = 1 / 16, 1 / 16
"""Of the largest share: a full path is better than a dead one, and where all others have died it is taken."""


class Spreads:
    """Makes them for hosts that serve programs with the verbs shim, anew only where something has changed."""

    def __init__(self) -> None:
        self._rests_on: object = None
        self._made: dict[str, list[Spread]] = {}
        self._links: Sequence[DirectedLink] = ()
        self._loads = np.zeros(0)
        self._told = self._loads
        self._looked_s = -np.inf

    @property
    def is_stale(self) -> bool:
        """Whether hosts that have such programs were told by other loads."""
        return bool(self._made) and self._told is not self._loads

    def see(self, links: Sequence[DirectedLink], loads: NDArray[np.float64], now_s: float) -> None:
        """What is put on each link of the routes now, as part of what it can carry, shape (links,); looked at now and then."""
        is_other = links is not self._links and links != self._links
        if now_s - self._looked_s < LOOK_S and not is_other:
            return
        self._looked_s = now_s
        kept = np.full(len(links), -np.inf) if is_other else self._loads
        stepped = LOAD_STEP * np.round(loads / LOAD_STEP)
        now = np.where(np.abs(loads - kept) > LOAD_CALM, stepped, kept)
        self._links = links
        if is_other or not np.array_equal(now, self._loads):
            self._loads = now

    def of(
        self,
        hellos: Iterable[Hello],
        pairs: Collection[Pair],
        candidates: Candidates,
        dead: Collection[DirectedLink],
    ) -> Mapping[str, list[Spread]]:
        """What to tell each host that has such programs.

        Args:
            hellos: of all hosts.
            pairs: of NICs and addresses that have to do with each other.
            candidates: the known paths.
            dead: links not to use.
        """
        told = list(hellos)
        nics = {
            nic_id(one.host, nic.ifname): (one.host, nic.ifname)
            for one in told
            if one.verbs and not one.observe_only
            for nic in one.nics
        }
        if not nics:
            return {}
        uds = {
            address: nic.ud for one in told for nic in one.nics for address in (nic.ipv4, nic.ipv6) if address
        }
        mine = sorted(pair for pair in pairs if pair[0] in nics)
        links, self._told = candidates.routes.links, self._loads
        loads = self._loads if links == self._links else np.zeros(len(links))
        rests_on = candidates.number, frozenset(dead), tuple(nics), mine, uds, loads.tobytes()
        if rests_on != self._rests_on:
            avoided = {i for i, link in enumerate(links) if link in dead} if dead else set()
            ways = Ways(avoided, loads.tolist())
            self._rests_on, self._made = rests_on, _made(nics, mine, uds, candidates, ways)
        return self._made


class Ways:
    """Which paths to take, worked out once for all pairs that have the same.

    Args:
        avoided: links not to cross.
        loads: what is put on each link, as part of what it can carry.
    """

    def __init__(self, avoided: Collection[int], loads: Sequence[float]) -> None:
        self._avoided, self._loads = avoided, loads
        self._found: dict[tuple[Links, ...], tuple[list[int], list[float]]] = {}

    def of(self, paths: tuple[Links, ...]) -> tuple[list[int], list[float]]:
        """Some of these paths in order, by number, and the share of each; no shares where all are alike."""
        found = self._found.get(paths)
        if found is None:
            loads = [max((self._loads[link] for link in path), default=0.0) for path in paths]
            chosen = sorted(disjoint(paths, self._avoided, loads))
            found = self._found[paths] = chosen, shares([loads[k] for k in chosen])
        return found


def _made(
    nics: Mapping[str, tuple[str, str]],
    pairs: Iterable[Pair],
    uds: Mapping[str, UdAddress | None],
    candidates: Candidates,
    ways: Ways,
) -> dict[str, list[Spread]]:
    made: defaultdict[str, list[Spread]] = defaultdict(list)
    for src, dst_addr in pairs:
        host, ifname = nics[src]
        choices = candidates.of(src, dst_addr)
        if choices is None or len(made[host]) >= MOST_OF_A_HOST:
            continue
        chosen, parts = ways.of(choices.paths)
        sports, ud = [choices.ports[k] for k in chosen], uds.get(dst_addr)
        made[host].append(Spread(nic=ifname, dst_addr=dst_addr, sports=sports, shares=parts, dst_ud=ud))
    return dict(made)


def disjoint(paths: Sequence[Links], avoided: Collection[int], loads: Sequence[float]) -> list[int]:
    """The paths that cross none of the links avoided, by number, so many as a table has room for.

    Paths come first that cross what none before them does, so that few share a link where there are more than fit; of these
    the least loaded. Where all cross links that are avoided these are as good as any.
    """
    living = [k for k, path in enumerate(paths) if not any(link in avoided for link in path)]
    left = living or list(range(len(paths)))
    crossed: defaultdict[int, int] = defaultdict(int)
    chosen: list[int] = []
    while left and len(chosen) < MOST_CHOICES:
        k = min(left, key=lambda k: (max((crossed[link] for link in paths[k]), default=0), loads[k], k))
        left.remove(k)
        chosen.append(k)
        for link in paths[k]:
            crossed[link] += 1
    return chosen


def shares(loads: Sequence[float]) -> list[float]:
    """The share of each path in new queue pairs, the largest 1; none where all are alike.

    By these all paths come to be equally full once new queue pairs want as much as all paths can carry: each has what is
    missing to the level up to which water stands where ground of these heights takes a unit for each path.

    Args:
        loads: of the fullest link of each path, what is put on it as part of what it can carry.
    """
    level, below = 0.0, 0.0
    for count, load in enumerate(sorted(loads)):
        if count and level <= load:
            break
        below += load
        level = (len(loads) + below) / (count + 1)
    missing = [max(0.0, level - load) for load in loads]
    most = max(missing, default=1.0)
    found = [max(LEAST_SHARE, SHARE_STEP * round(part / most / SHARE_STEP)) for part in missing]
    return found if any(part != 1.0 for part in found) else []
