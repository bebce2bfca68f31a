"""What goes wrong when, drawn from a seed. No I/O."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

from tools.lab.topology import Topology
from tools.soak.troubles import ABSENCE, BOTH, KINDS, TRACKS, Kind, Track, Trouble

GAP_S = (12.0, 20.0)
"""From the end of a trouble to the next of its track."""

CALM_S = 20.0
"""At the beginning, and at the end."""

PROCESSES_END_UNTIL = 0.5
"""Of the run: each process of the second half lives through it, so that its memory can be judged."""

ABSENCE_BEGINS, ABSENCE_LASTS, LONGEST_ABSENCE_S = 0.1, 0.3, 3600.0
LOSS = (0.02, 0.2)
LEADER = "leader"


def draw(topology: Topology, seconds: float, seed: int) -> list[Trouble]:
    """Troubles of all tracks, in the order of their beginnings.

    Each kind comes once before any comes again, as far as it may. While a bus server is away for long no other one is
    troubled.

    Args:
        topology: of a lab with managers and bus servers of its own.
        seconds: of the run.
        seed: the same one draws the same.
    """
    absence = _absence(topology, seconds, random.Random(f"{seed} {ABSENCE}"))
    found = [absence]
    for track in TRACKS:
        found += _track(topology, track, seconds, absence, random.Random(f"{seed} {track}"))
    return sorted(found, key=lambda trouble: trouble.begin_s)


def _absence(topology: Topology, seconds: float, rng: random.Random) -> Trouble:
    begin_s = CALM_S + ABSENCE_BEGINS * seconds
    lasts_s = min(ABSENCE_LASTS * seconds, LONGEST_ABSENCE_S)
    return Trouble(ABSENCE, rng.choice(topology.servers), begin_s, begin_s + lasts_s)


def _track(
    topology: Topology, track: Track, seconds: float, absence: Trouble, rng: random.Random
) -> Iterator[Trouble]:
    deck: list[str] = []
    at_s = CALM_S + rng.uniform(0, GAP_S[0])
    while True:
        may = partial(_may, seconds=seconds, absence=absence, at_s=at_s)
        name, lasts_s = _deal(deck, track, may, rng)
        if at_s + lasts_s > seconds - CALM_S:
            return
        yield _drawn(topology, name, at_s, at_s + lasts_s, rng)
        at_s += lasts_s + rng.uniform(*GAP_S)


def _deal(
    deck: list[str], track: Track, may: Callable[[Kind, float], bool], rng: random.Random
) -> tuple[str, float]:
    """The first kind in the deck that may come now, and how long it lasts; the deck is filled up where there is none."""
    while True:
        for name in deck:
            lasts_s = rng.uniform(*KINDS[name].lasts_s)
            if may(KINDS[name], lasts_s):
                deck.remove(name)
                return name, lasts_s
        fresh = [name for name, kind in KINDS.items() if kind.track == track]
        rng.shuffle(fresh)
        deck += fresh


def _may(kind: Kind, lasts_s: float, *, seconds: float, absence: Trouble, at_s: float) -> bool:
    if kind.ends_process and at_s > PROCESSES_END_UNTIL * seconds - CALM_S:
        return False
    apart = at_s > absence.end_s + GAP_S[0] or at_s + lasts_s < absence.begin_s - GAP_S[0]
    return apart or not kind.needs_all_servers


def _drawn(topology: Topology, name: str, begin_s: float, end_s: float, rng: random.Random) -> Trouble:
    whom = KINDS[name].whom
    uplinks = [link.name for link in topology.switch_links]
    targets = {
        "link": list(topology.links),
        "uplink": uplinks,
        "hostlink": [link for link in topology.links if link not in uplinks],
        "spine": topology.spines,
        "manager": [LEADER, *topology.managers],
        "server": topology.servers,
        "host": topology.hosts,
        "fleet": [""],
    }
    target = rng.choice(targets[whom])
    direction, share = BOTH, 1.0
    if name == "silent_one_way":
        direction = rng.choice(topology.link(target).directions)
    if name == "slow_sender":
        direction = topology.link(target).directions[0]
    if name == "slow_receiver":
        direction = topology.link(target).directions[1]
    if name == "loss":
        direction = rng.choice([BOTH, *topology.link(target).directions])
        share = math.exp(rng.uniform(*map(math.log, LOSS)))
    return Trouble(name, target, begin_s, end_s, direction, share)
