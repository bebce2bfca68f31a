"""What walks show of each link: whether packets of the fabric's MTU cross it, and whether DSCP and ECN stay as they are. Pure.

A switch that ends a packet's way quotes its header as it came (RFC 792, RFC 4443). Where two switches that follow each other
quote another DSCP, or no ECN where there was some, it was changed on the link between them, by the first one's way out or
the second one's way in. A packet too large for a link is refused by the switch before it (RFC 1191, RFC 8201); where it
vanishes instead, and a small one goes on, it vanishes on the first link behind which it is not seen.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cwdp.shared.audit.facts import Walk, Walked, WalkHop
from cwdp.shared.bus.messages import nic_id
from manager.audit.network.naming import link_subject
from manager.audit.network.planning import SMALL_BYTES
from manager.audit.results import FABRIC, Result
from manager.fabric.routes import DirectedLink, PathName, Routes, is_nic

MTU, DSCP, ECN = "path-mtu", "dscp-kept", "ecn-kept"
CE = 3

_WHY = {
    MTU: "messages are cut to the NICs' MTU; what does not fit is lost, and queue pairs die of it",
    DSCP: "without its DSCP RoCEv2 waits in the queue of all others, with neither PFC nor the marks it needs",
    ECN: "without ECN switches drop what they would mark, and senders learn of a queue by losses",
}
_MEND = {
    MTU: "set the MTU of both ends of the link as the others'",
    DSCP: "have both ends of the link trust DSCP and not rewrite it",
    ECN: "have both ends of the link leave ECN as it is",
}
_REFERENCES = {
    MTU: "RFC 1191; IBTA, RoCEv2 annex A17",
    DSCP: "RFC 2474; vendors' RoCE guides",
    ECN: "RFC 3168; vendors' RoCE guides",
}


@dataclass
class _Link:
    """What walks say of a link: how many cleared it, and how many accuse it, by what they saw."""

    cleared: int = 0
    accused: Counter[str] = field(default_factory=Counter)


_Links = defaultdict[str, defaultdict[DirectedLink, _Link]]


def judged(told: Iterable[tuple[str, Walked]], routes: Routes) -> tuple[list[Result], dict[str, int]]:
    """Results, and how many links pass each check.

    Args:
        told: walks, and whose they are.
        routes: the paths as they were when the walks were planned.
    """
    links: _Links = defaultdict(lambda: defaultdict(_Link))
    results: list[Result] = []
    by_path: defaultdict[tuple[PathName, int], dict[bool, Walked]] = defaultdict(dict)
    for host, walked in told:
        walk = walked.walk
        if walked.trouble:
            results.append(_not_made(host, walked))
            continue
        name = PathName(nic_id(host, walk.nic), walk.dst_addr, walk.sport)
        by_path[name, walk.tos][walk.size_bytes > SMALL_BYTES] = walked
    for (name, _), sizes in by_path.items():
        way = [routes.links[number] for number in routes.paths.get(name, ())]
        for walked in sizes.values():
            _header(walked.walk, walked.hops, way, links)
        if True in sizes:
            _size(sizes[True], sizes.get(False), way, links)
    passed = dict.fromkeys((MTU, DSCP, ECN), 0)
    for check, of_links in sorted(links.items()):
        for link, seen in sorted(of_links.items()):
            if seen.accused:
                results.append(_result(check, link, seen))
            else:
                passed[check] += 1
    return results, passed


def _header(walk: Walk, hops: Sequence[WalkHop], way: Sequence[DirectedLink], links: _Links) -> None:
    """What was changed of DSCP and ECN, and between which two quotes."""
    tos, at = walk.tos, 0
    for place, hop in enumerate(hops[: len(way)], start=1):
        if hop.answer != "expired" or hop.tos < 0:
            continue
        between = way[at:place]
        dscp, ecn = (tos >> 2, hop.tos >> 2), (tos & 3, hop.tos & 3)
        _say(links[DSCP], between, f"DSCP {dscp[0]} becomes {dscp[1]}" if dscp[0] != dscp[1] else "")
        is_lost = ecn[0] != ecn[1] and ecn[1] != CE and ecn[0] != 0
        _say(links[ECN], between, f"ECN {ecn[0]:02b} becomes {ecn[1]:02b}" if is_lost else "")
        tos, at = hop.tos, place


def _say(links: defaultdict[DirectedLink, _Link], between: Sequence[DirectedLink], accused: str) -> None:
    """All links between are well, or it is one of them; several are named together."""
    if not accused:
        for link in between:
            links[link].cleared += 1
    elif len(between) == 1:
        links[between[0]].accused[accused] += 1
    elif between:
        links[DirectedLink(between[0].a, between[-1].b)].accused[f"{accused} on the way"] += 1


def _size(large: Walked, small: Walked | None, way: Sequence[DirectedLink], links: _Links) -> None:
    """How far a large packet came."""
    size, known = large.walk.size_bytes, 0
    for place, hop in enumerate(large.hops[: len(way)], start=1):
        if hop.answer == "too_big":
            tells = f", {hop.responder} says {hop.mtu_bytes:,} do" if hop.mtu_bytes else ""
            _accuse_size(way[known:place], f"packets of {size:,} bytes do not fit{tells}", links)
            return
        if hop.answer in ("expired", "unreachable"):
            for link in way[known:place]:
                links[MTU][link].cleared += 1
            known = place
    further = _furthest(small, len(way))
    if further > known:
        _accuse_size(way[known : known + 1], f"packets of {size:,} bytes vanish, small ones do not", links)


def _accuse_size(between: Sequence[DirectedLink], what: str, links: _Links) -> None:
    if between:
        links[MTU][between[-1]].accused[what] += 1


def _furthest(small: Walked | None, most: int) -> int:
    """The last hop that a small packet is known to have come to."""
    hops = [] if small is None else small.hops[:most]
    return max((place for place, hop in enumerate(hops, start=1) if hop.answer == "expired"), default=0)


def _result(check: str, link: DirectedLink, seen: _Link) -> Result:
    what, times = seen.accused.most_common(1)[0]
    walks = times + seen.cleared
    host, subject = link_subject(link)
    return Result(
        check=check,
        host=host,
        subject=subject,
        verdict="warn" if seen.cleared else "fail",
        severity="fail",
        found=what if not seen.cleared else f"{what}, in {times} of {walks} walks",
        expected="as on other links",
        why=_WHY[check],
        mend=_MEND[check],
        reference=_REFERENCES[check],
    )


def _not_made(host: str, walked: Walked) -> Result:
    walk = walked.walk
    return Result(
        check=MTU,
        host=host,
        subject=walk.nic,
        verdict="unknown",
        severity="warn",
        reason=f"packets of {walk.size_bytes:,} bytes to {walk.dst_addr} were not sent: {walked.trouble}",
        why=_WHY[MTU],
    )


def untold(
    passed: Mapping[str, int], results: Iterable[Result], links: Sequence[DirectedLink]
) -> list[Result]:
    """What of the fabric's links no walk tells, one result a check. The last link to a NIC is not counted: hosts need not answer."""
    told = Counter(passed) + Counter(one.check for one in results if one.verdict != "unknown")
    count = sum(not is_nic(link.b) for link in links)
    return [
        Result(
            check=check,
            host=FABRIC,
            verdict="unknown",
            severity="warn",
            reason=f"of {count - told[check]:,} of {count:,} links no answer tells: switches there are silent, or no path crosses them",
            why=_WHY[check],
        )
        for check in (MTU, DSCP, ECN)
        if told[check] < count
    ]
