"""Which NICs reach each other, by what hosts tell of whom they asked: NICs, pairs, and ports that bring nothing back. Pure.

A NIC that nobody reaches, or that reaches nobody, is named once, and none of its pairs. Of the others, what is silent is told
by what most of it has in common: a pair, a NIC, two leaves, or a leaf. Probes there and back look alike, so what is
said of a pair is said of both directions.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.audit.asks import Asked, Silent
from cwdp.shared.bus.messages import host_of, nic_id
from manager.audit.network.asks import Plan, met
from manager.audit.results import FABRIC, Result
from manager.fabric.choice import CONFIDENCE

REACHABLE = "reachable"
MOST_TOLD = 20
"""NICs, and causes of silent pairs or ports, that are told one by one."""

MOST_FOLDED = 20_000
"""Silent pairs among which common causes are looked for, drawn at random."""

NEARLY = 0.9
EXAMPLES = 3
IPV6_BIT, IPV4_BIT = 2, 1

_WHY = "queue pairs between them cannot be connected, or die of it"
_MEND = "cwdp link shows what is silent; cwdp path the switches of a port; look for routes and filters that only some switches have"


class Ends(NamedTuple):
    """Two NICs, in order of name."""

    a: str
    b: str


class Explained(Protocol):
    """Where a link is named that is dead or loses; see `manager.audit.network.dead.Dead`."""

    @property
    def nodes(self) -> Collection[str]:
        """Those behind which, or NICs of which, packets are lost."""

    @property
    def between(self) -> Collection[tuple[str, str]]:
        """The leaves that it leads between."""


@dataclass
class Pair:
    """What was silent between two NICs.

    Attributes:
        silent, asked: ports, of all directions and addresses that told of silence.
        whole: who asked the other, and over no port was answered.
        example: a port that is silent, as people read it.
    """

    ends: Ends
    silent: int = 0
    asked: int = 0
    whole: set[str] = field(default_factory=set)
    example: str = ""


@dataclass(frozen=True)
class Reached:
    """What hosts tell.

    Attributes:
        mute: NICs that asked and got no answer at all.
        dead: NICs that nobody reaches, and how many asked.
        pairs: between which something was silent, neither of them one of those.
        asked, silent: pairs of a NIC and an address; those of which a port was silent, or it cannot be told.
        unsettled: those of which it cannot be told.
        told: hosts that have asked.
    """

    mute: Sequence[str]
    dead: Mapping[str, int]
    pairs: Sequence[Pair]
    asked: int
    silent: int
    unsettled: int
    told: int

    @property
    def named(self) -> frozenset[str]:
        """NICs that are named themselves."""
        return frozenset((*self.mute, *self.dead))


def reached(plan: Plan, told: Mapping[str, Asked | None]) -> Reached:
    """What hosts tell of what they were ordered; what they were not ordered, and what cannot be, is passed over."""
    own = {
        host: _Own(plan, host, asked)
        for host, asked in told.items()
        if asked is not None and host in plan.orders
    }
    mute = sorted(nic for one in own.values() for nic in one.mute)
    dead = _dead(plan, own.values())
    named = {*mute, *dead}
    pairs: dict[Ends, Pair] = {}
    for one in own.values():
        for src, dst, silent in one.silent:
            if src not in named and dst not in named:
                ends = Ends(*sorted((src, dst)))
                _add(pairs.setdefault(ends, Pair(ends)), src, dst, silent)
    lost = sum(one.listed + one.beyond + one.unsettled + one.of_mute for one in own.values())
    return Reached(
        mute=mute,
        dead=dead,
        pairs=list(pairs.values()),
        asked=sum(one.asked for one in own.values()),
        silent=lost,
        unsettled=sum(one.unsettled for one in own.values()),
        told=len(own),
    )


class _Own:
    """What one host tells, as far as it was ordered.

    Attributes:
        mute: its NICs that asked and got no answer.
        silent: its NIC, the other, and what was silent.
        whole: places of targets that gave none of its NICs an answer that asked, and how many these are.
        weight: how many of its NICs asked each target that it has chosen, shape (targets of the host,).
        asked, listed, beyond, unsettled, of_mute: pairs of a NIC and an address.
    """

    def __init__(self, plan: Plan, host: str, asked: Asked) -> None:
        order, self.places = plan.orders[host], plan.chosen[host]
        addresses = {plan.targets[place].addr: place for place in self.places.tolist()}
        heard = {one.nic: one for one in asked.nics if one.nic in order.nics and one.asked > 0}
        silent = {
            (one.nic, one.dst_addr): one
            for one in asked.silent
            if one.dst_addr in addresses and one.answered < one.asked <= order.ports
            if one.nic in heard and heard[one.nic].answered > 0
        }
        self.mute = [nic_id(host, name) for name, one in heard.items() if one.answered == 0]
        is_ipv6 = np.array([":" in plan.targets[place].addr for place in self.places.tolist()], bool)
        of_all, of_mute = (
            _weight(is_ipv6, [plan.families.get(nic, 0) for nic in nics])
            for nics in ([nic_id(host, name) for name in heard], self.mute)
        )
        self.asked, self.of_mute = int(of_all.sum()), int(of_mute.sum())
        self.weight = of_all - of_mute
        self.listed = len(silent)
        room = max(self.asked - self.of_mute - self.listed, 0)
        self.beyond = min(asked.beyond, room)
        self.unsettled = min(asked.unsettled, room - self.beyond)
        self.is_cut = asked.beyond > 0 and all(one.answered == 0 for one in silent.values())
        self.whole = Counter(addresses[addr] for (_, addr), one in silent.items() if one.answered == 0)
        self.silent = [
            (nic_id(host, name), plan.targets[addresses[addr]].nic, one)
            for (name, addr), one in silent.items()
        ]


def _weight(is_ipv6: NDArray[np.bool_], families: Sequence[int]) -> NDArray[np.int64]:
    """How many of some NICs ask each of some addresses."""
    ipv4, ipv6 = (sum(bool(each & bit) for each in families) for bit in (IPV4_BIT, IPV6_BIT))
    return np.where(is_ipv6, ipv6, ipv4).astype(np.int64)


def _dead(plan: Plan, own: Iterable[_Own]) -> dict[str, int]:
    """NICs that answer nobody of those that others answer, at least two; and how many these are."""
    asked = np.zeros(len(plan.targets), np.int64)
    whole = np.zeros(len(plan.targets), np.int64)
    for one in own:
        if not one.is_cut:
            asked[one.places] += one.weight
            for place, count in one.whole.items():
                whole[place] += count
    by_nic: defaultdict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(asked).tolist():
        by_nic[plan.targets[place].nic].append(place)
    return {
        nic: int(asked[places].max())
        for nic, places in by_nic.items()
        if (whole[places] >= asked[places]).all() and asked[places].max() >= 2
    }


def _add(pair: Pair, src: str, dst: str, silent: Silent) -> None:
    pair.silent += silent.asked - silent.answered
    pair.asked += silent.asked
    if silent.answered == 0:
        pair.whole.add(src)
    port = f" by port {silent.sports[0]}" if silent.sports and silent.answered else ""
    where = " (it does not leave the host)" if silent.unsent else ""
    pair.example = f"{src} > {dst}{port}{where}"


def judged(plan: Plan, found: Reached, explained: Explained, untold: int = 0) -> tuple[list[Result], int]:
    """Results, and how many pairs of a NIC and an address answer over all ports.

    Args:
        plan: who was to ask whom.
        found: what came of it.
        explained: where a link is named that is dead or loses: single ports that are silent there are no findings of their own.
        untold: hosts that have told their facts, and not whom they reach.
    """
    left = _unexplained(plan, found.pairs, explained)
    results = [*_nics(plan, found), *_told(plan, left), *_incomplete(plan, found, untold)]
    return results, max(found.asked - found.silent, 0)


def _unexplained(plan: Plan, pairs: Sequence[Pair], explained: Explained) -> list[Pair]:
    """Those that no link accounts for that is dead or loses: such take some ports of pairs, and by chance all of a few."""
    at = [sorted(plan.leaf.get(end, "") for end in pair.ends) for pair in pairs]
    nodes = frozenset(explained.nodes)
    partial = {tuple(leaves) for pair, leaves in zip(pairs, at, strict=True) if not pair.whole}
    return [
        pair
        for pair, (a, b) in zip(pairs, at, strict=True)
        if (pair.whole and plan.ways > 1 and (a, b) not in partial)
        or not (nodes.intersection((a, b, *pair.ends)) or (a, b) in explained.between)
    ]


def _nics(plan: Plan, found: Reached) -> Iterator[Result]:
    """NICs that reach nobody, or that nobody reaches."""
    named = sorted(found.named)
    if len(found.mute) > 1 and 2 * len(found.mute) > len(plan.families):
        yield _result(
            plan,
            FABRIC,
            "",
            f"{len(found.mute)} of {len(plan.families)} NICs get no answer at all: {_shown(found.mute)}",
        )
        named = sorted(found.dead)
    for nic in named[:MOST_TOLD]:
        said = ["none that it asks answers"] if nic in found.mute else []
        said += [f"it answers none of {found.dead[nic]} NICs that ask"] if nic in found.dead else []
        yield _result(plan, host_of(nic), nic.partition("/")[2], ", and ".join(said))
    if len(named) > MOST_TOLD:
        rest = named[MOST_TOLD:]
        yield _result(
            plan, FABRIC, "", f"{len(rest)} more NICs reach nobody, or nobody reaches them: {_shown(rest)}"
        )


def _told(plan: Plan, pairs: Sequence[Pair]) -> Iterator[Result]:
    """What is silent, by what it has in common, the largest first."""
    chosen = list(pairs)
    if len(chosen) > MOST_FOLDED:
        chosen = random.Random(0).sample(chosen, MOST_FOLDED)  # noqa: S311 - no secret
    left = len(pairs)
    for cause, mine in _causes(plan.leaf, chosen):
        left -= len(mine)
        found = f"{_said(mine)}{_where(cause, mine, plan.leaf)}: {_examples(mine)}"
        yield _result(plan, cause.host, cause.subject, found)
    if left:
        yield _result(
            plan, FABRIC, "", f"some ports bring nothing back, or all, between {left} more pairs of NICs"
        )


def _said(pairs: Sequence[Pair]) -> str:
    silent, asked = sum(pair.silent for pair in pairs), sum(pair.asked for pair in pairs)
    whole = [pair for pair in pairs if pair.whole]
    between = f" between {len(pairs)} pairs of NICs" if len(pairs) > 1 else ""
    if len(whole) < len(pairs):
        none = f", {len(whole)} of which get no answer at all" if whole else ""
        return f"{silent} of {asked} ports bring nothing back{between}{none}"
    what = f" what {min(whole[0].whole)} asks" if len(whole) == len(whole[0].whole) == 1 else ""
    return f"no path answers{what}{between}, {asked} ports"


class _Cause(NamedTuple):
    """What silent pairs have in common: both NICs, one NIC, both leaves, one leaf; those first that say most."""

    rank: int
    names: tuple[str, ...]

    @property
    def host(self) -> str:
        return host_of(self.names[0]) if self.rank <= 1 else FABRIC

    @property
    def subject(self) -> str:
        if self.rank > 1:
            return " - ".join(dict.fromkeys(self.names))
        return " > ".join((self.names[0].partition("/")[2], *self.names[1:]))


def _causes(leaf: Mapping[str, str], pairs: Sequence[Pair]) -> Iterator[tuple[_Cause, list[Pair]]]:
    """At most MOST_TOLD, with the pairs that no earlier one has: always that with the most, or one that says more and has nearly as many."""
    of = [_causes_of(leaf, pair.ends) for pair in pairs]
    members: defaultdict[_Cause, list[int]] = defaultdict(list)
    for number, mine in enumerate(of):
        for cause in mine:
            members[cause].append(number)
    left = Counter({cause: len(mine) for cause, mine in members.items()})
    is_told = [False] * len(pairs)
    for _ in range(MOST_TOLD):
        most = max(left.values(), default=0)
        if not most:
            return
        best = min(
            (cause for cause, count in left.items() if count >= NEARLY * most),
            key=lambda cause: (cause.rank, -left[cause], cause.names),
        )
        chosen = [number for number in members[best] if not is_told[number]]
        for number in chosen:
            is_told[number] = True
            left.subtract(of[number])
        yield best, [pairs[number] for number in chosen]


def _causes_of(leaf: Mapping[str, str], ends: Ends) -> list[_Cause]:
    leaves = sorted(leaf[end] for end in ends if end in leaf)
    found = [_Cause(0, ends), *(_Cause(1, (end,)) for end in ends)]
    if len(leaves) == len(ends):
        found.append(_Cause(2, tuple(leaves)))
    return [*found, *(_Cause(3, (each,)) for each in dict.fromkeys(leaves))]


def _where(cause: _Cause, pairs: Sequence[Pair], leaf: Mapping[str, str]) -> str:
    """Of a NIC: the leaf that all the others are at, if it is one."""
    if cause.rank != 1 or len(pairs) == 1:
        return ""
    leaves = {leaf.get(end, "") for pair in pairs for end in pair.ends if end not in cause.names}
    return f", all others at {leaves.pop()}" if len(leaves) == 1 and "" not in leaves else ""


def _examples(pairs: Sequence[Pair]) -> str:
    more = f" and {len(pairs) - EXAMPLES} more" if len(pairs) > EXAMPLES else ""
    return ", ".join(pair.example for pair in pairs[:EXAMPLES]) + more


def _shown(nics: Sequence[str]) -> str:
    more = f" and {len(nics) - EXAMPLES} more" if len(nics) > EXAMPLES else ""
    return ", ".join(nics[:EXAMPLES]) + more


def _result(plan: Plan, host: str, subject: str, found: str) -> Result:
    return Result(
        check=REACHABLE,
        host=host,
        subject=subject,
        verdict="fail",
        severity="fail",
        found=found,
        expected=f"each path answers; {_coverage(plan)}",
        why=_WHY,
        mend=_MEND,
    )


def _coverage(plan: Plan) -> str:
    """How sure it is that each path was met."""
    if not plan.ways:
        return f"a pair was asked over {plan.ports} ports, and how many paths there are is not known"
    ports, ways = plan.ports, plan.ways
    if (one := met(ports, ways)) >= CONFIDENCE:
        return (
            f"the {ports} ports of a pair lead over each of {ways} paths between leaves with {_percent(one)}"
        )
    part, together = 1 - (1 - 1 / ways) ** ports, met(ports * plan.share * _pairs_of_leaves(plan), ways)
    return (
        f"the {ports} ports of a pair lead over {_percent(part)} of {ways} paths between leaves, "
        f"those of all pairs of two leaves over each with {_percent(together)}"
    )


def _pairs_of_leaves(plan: Plan) -> float:
    """How many pairs there are usually between two leaves."""
    sizes = Counter(plan.leaf.values())
    return float(np.median(list(sizes.values()))) ** 2 if sizes else 1.0


def _percent(share: float) -> str:
    """Rounded down."""
    return f"{int(1_000 * share) / 10:g} %"


def _incomplete(plan: Plan, found: Reached, untold: int) -> list[Result]:
    """What was not asked, or cannot be told, in one result."""
    reasons = []
    if untold:
        reasons.append(f"{untold} hosts did not say whom they reach: their agents are older")
    if found.told and plan.share < 1:
        reasons.append(f"{_percent(plan.share)} of all pairs of NICs were asked, each NIC by as many")
    if found.told and (not plan.ways or met(plan.ports, plan.ways) < CONFIDENCE):
        reasons.append(_coverage(plan))
    if found.unsettled:
        reasons.append(
            f"of {found.unsettled} of {found.asked} pairs it cannot be told: there was no time left"
        )
    if plan.left_out:
        reasons.append(f"{plan.left_out} NICs probe by UD queue pairs: only some pairs of theirs are known")
    if not reasons:
        return []
    return [
        Result(
            check=REACHABLE,
            host=FABRIC,
            verdict="unknown",
            severity="warn",
            reason="; ".join(reasons),
            why=_WHY,
        )
    ]
