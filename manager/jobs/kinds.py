"""What collective flows may be of, by who sends to whom. Pure.

More than this the traffic does not tell: what the name says is the pattern of the flows, of whatever library.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pair", "ring", "all-to-all", "pipeline", "tree", "chain", "mixed"]
"""`chain`: three or four in a row, a pipeline or a tree. `mixed`: none of the others, or several at once."""

SYMMETRIC = ("pair", "ring", "all-to-all", "mixed")
"""All of them begin an iteration by themselves, not by what they are sent in it."""

CONTROL = 0.02
"""Pairs that send less than this share of what the one sends that sends most only tell each other to go on."""

NEARLY_ALL = 0.9
"""Of all pairs: what an all-to-all has at least."""

LONGEST_CHAIN = 4

Pair = tuple[str, str]


@dataclass(frozen=True)
class Communicator:
    """NICs that send each other, in order, and in what pattern."""

    members: tuple[str, ...]
    kind: Kind


def communicators(sent_bytes: Mapping[Pair, int]) -> list[Communicator]:
    """The NICs of a job by who sends to whom, in order.

    Args:
        sent_bytes: by source and target.
    """
    most = max(sent_bytes.values(), default=0)
    pairs = {pair for pair, sent in sent_bytes.items() if sent >= CONTROL * most}
    return [
        Communicator(tuple(sorted(members)), _kind({pair for pair in pairs if pair[0] in members}))
        for members in _connected(pairs)
    ]


def _connected(pairs: Iterable[Pair]) -> list[set[str]]:
    near: defaultdict[str, set[str]] = defaultdict(set)
    for src, dst in pairs:
        near[src].add(dst)
        near[dst].add(src)
    found: list[set[str]] = []
    left = set(near)
    for first in sorted(near):
        if first not in left:
            continue
        members, edge = {first}, [first]
        while edge:
            edge = [each for one in edge for each in near[one] - members]
            members.update(edge)
        left -= members
        found.append(members)
    return found


def _kind(pairs: set[Pair]) -> Kind:
    links = {frozenset(pair) for pair in pairs}
    degrees = Counter(nic for link in links for nic in link)
    n = len(degrees)
    if n == 2:
        return "pair"
    out, into = Counter(src for src, _ in pairs), Counter(dst for _, dst in pairs)
    if len(pairs) == n and set(out.values()) == set(into.values()) == {1}:
        return "ring"
    if len(links) == n - 1:
        if max(degrees.values()) > 2:
            return "tree"
        return "chain" if n <= LONGEST_CHAIN else "pipeline"
    return "all-to-all" if len(pairs) >= NEARLY_ALL * n * (n - 1) else "mixed"
