"""Which links, NICs and paths carry less than they should: results of an audit. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cwdp.shared.bus.messages import host_of
from cwdp.shared.rates import format_rate
from manager.audit.network.naming import link_subject
from manager.audit.results import FABRIC, Result
from manager.audit.throughput.carried import Carried
from manager.audit.throughput.course import Course
from manager.audit.throughput.evidence import Evidence, Slow
from manager.audit.throughput.ways import NONE, Ways

THROUGHPUT, BISECTION, NIC_RATE = "throughput", "bisection", "nic-rate"

LEAST_SHARE = 0.8
"""Of what links carry one by one, that halves of the fabric are to send each other; and of NICs' speed, that flows are to carry."""

MOST_PATHS = 20
"""That are told one by one."""

_WHY = "every flow that is hashed to it is so slow, and a collective waits for the slowest"


def judged(course: Course, refused: Mapping[str, str], cap_bps: int) -> tuple[list[Result], dict[str, int]]:
    """Results, and how many links pass.

    Args:
        course: its rounds are over.
        refused: why NICs did not take part, by NIC.
        cap_bps: that no flow was to exceed; 0 for no cap.
    """
    found = course.evidence()
    slow, alone = found.slow_links()
    told = _Told(
        found, f"what most carry, of at most {format_rate(cap_bps)}" if cap_bps else "what most carry"
    )
    results = [told.link(one) for one in slow]
    results += told.paths(alone)
    results += _too_slow_for_nics(course, cap_bps)
    results += [_refused(nic, why) for nic, why in sorted(refused.items())]
    results += _not_filled(course, found)
    results += _bisection(course)
    accused = {link for one in slow for link in one.links}
    well = set(np.flatnonzero(course.filled).tolist()) - accused
    is_wide = BISECTION not in {one.check for one in results}
    return results, {THROUGHPUT: len(well), BISECTION: int(is_wide and course.halves is not None)}


def carried(course: Course, cap_bps: int) -> Carried:
    """What all flows came to."""
    halves_bps, bound_bps = _halves(course)
    return Carried(
        rounds=course.done,
        cap_bps=cap_bps,
        links=len(course.ways.known),
        filled=int(np.count_nonzero(course.filled)),
        filled_after=course.filled_after,
        flow_bps=max(course.rates.usual().values(), default=0.0),
        halves_bps=halves_bps,
        halves_bound_bps=bound_bps,
    )


class _Told:
    """What is slow, in words.

    Args:
        found: what was measured.
        expected: in words.
    """

    def __init__(self, found: Evidence, expected: str) -> None:
        self._found, self._ways, self._expected = found, found.rates.ways, expected

    def link(self, slow: Slow) -> Result:
        """A link, one of several links, or all of a switch's to others or from others."""
        links = [self._ways.links[link] for link in slow.links]
        (host, subject), *others = map(link_subject, links)
        found = f"carries {self._percent(slow.flows)} of it, in {len(slow.flows)} of {len(slow.flows)} flows that filled it"
        if slow.switch:
            way = "to" if slow.switch == links[0].a else "from"
            subject, found = slow.switch, f"each of its {len(links)} links {way} other switches {found}"
        elif others:
            found = (
                f"{found}; or it is {' or '.join(name for _, name in others)}, which the same flows crossed"
            )
        return self._slow(host, subject, found)

    def paths(self, flows: Iterable[int]) -> list[Result]:
        """Slow paths that share no slow link, those over the same links between switches together."""
        together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for i in flows:
            row = self._found.rates.carried[i].row
            middle = int(self._ways.middle[row])
            together[middle, NONE if middle != NONE else row].append(i)
        return [self._path(mine) for mine in sorted(together.values())[:MOST_PATHS]]

    def _path(self, flows: Sequence[int]) -> Result:
        rows = sorted({self._found.rates.carried[i].row for i in flows})
        found = f"carries {self._percent(flows)} of it, though its links carry more of other paths"
        between = _between(self._ways, rows[0])
        names = [_path_name(self._ways, row) for row in rows]
        if len(rows) == 1 or not between:
            src, _ = self._ways.ends(rows[0])
            over = f", over {between}" if between else ""
            return self._slow(host_of(src), names[0].partition("/")[2] + over, found)
        return self._slow(FABRIC, between, f"{found}: {', '.join(names[:3])}")

    def _percent(self, flows: Sequence[int]) -> str:
        return f"{100 * float(np.median(self._found.shares[list(flows)])):.0f} %"

    def _slow(self, host: str, subject: str, found: str) -> Result:
        return Result(
            check=THROUGHPUT,
            host=host,
            subject=subject,
            verdict="fail",
            severity="fail",
            found=found,
            expected=self._expected,
            why=_WHY,
            mend="compare both ends with others: speed, FEC, lanes, errors; cwdp link shows its losses and queue",
        )


def _path_name(ways: Ways, row: int) -> str:
    src, dst = ways.ends(row)
    return f"{src} > {dst} by port {ways.names[row].sport}"


def _between(ways: Ways, row: int) -> str:
    """The switches that a path crosses, where there is more than one."""
    inside = [ways.links[link] for link in ways.links_of(row)[1:-1]]
    return " > ".join([*(link.a for link in inside), *(link.b for link in inside[-1:])])


def _too_slow_for_nics(course: Course, cap_bps: int) -> list[Result]:
    """Where most flows carry less than their NICs could: then all links are slow, or the hosts."""
    for (_, speed_bps), bps in sorted(course.rates.usual().items()):
        most_bps = min(speed_bps, cap_bps or speed_bps)
        if bps < LEAST_SHARE * most_bps:
            return [
                _warning(
                    NIC_RATE,
                    found=f"most flows of NICs with {format_rate(speed_bps)} carry {format_rate(bps)}",
                    expected=f"{LEAST_SHARE:.0%} of {format_rate(most_bps)} at least",
                    why="a single job gets no more of its NICs, and links that are all slow alike are found by nothing else",
                    mend="look at PCIe, MTU and pause frames first; uplinks may be slower than NICs by design",
                )
            ]
    return []


def _refused(nic: str, why: str) -> Result:
    return Result(
        check=THROUGHPUT,
        host=host_of(nic),
        subject=nic.partition("/")[2],
        verdict="unknown",
        severity="fail",
        reason=why,
        why=_WHY,
    )


def _not_filled(course: Course, found: Evidence) -> list[Result]:
    """What of the fabric's links was not filled, or not told."""
    links = len(course.ways.known)
    filled = int(np.count_nonzero(course.filled[course.ways.known]))
    if not course.ways.names:
        return [_unknown("no path is known between NICs that may send")]
    results = []
    if filled < links:
        why = "NICs that could fill them took no part, or no path over them is known from end to end"
        results.append(
            _unknown(f"of {links:,} links, one way each, {links - filled:,} were not filled: {why}")
        )
    if not np.isfinite(found.shares).any():
        results.append(_unknown("too few flows were measured to tell which is slow"))
    return results


def _unknown(reason: str) -> Result:
    return Result(check=THROUGHPUT, host=FABRIC, verdict="unknown", severity="warn", reason=reason, why=_WHY)


def _halves(course: Course) -> tuple[float, float]:
    """What the halves of the fabric sent each other, both ways, and what its links would carry of it; bit/s, 0 for unknown."""
    if course.halves is None:
        return 0.0, 0.0
    done, bps = course.halves
    flows = [course.rates.of(row, rate, done.used) for row, rate in bps.items()]
    usual = course.rates.usual()
    expected = np.array([course.rates.expected(each, usual) for each in flows])
    known = np.isfinite(expected)
    sent = np.array([each.bps for each in flows])
    return float(sent[known].sum()), float(expected[known].sum())


def _bisection(course: Course) -> list[Result]:
    sent_bps, bound_bps = _halves(course)
    if sent_bps >= LEAST_SHARE * bound_bps:
        return []
    return [
        _warning(
            BISECTION,
            found=f"{format_rate(sent_bps)} between two halves of the fabric, both ways",
            expected=f"{format_rate(bound_bps)}, by what its links carry one by one",
            why="all-to-alls, and jobs over many leaves, get no more",
            mend="compare switches: PFC and ECN settings, links that share a port group",
        )
    ]


def _warning(check: str, *, found: str, expected: str, why: str, mend: str) -> Result:
    """About the fabric as a whole."""
    return Result(
        check=check,
        host=FABRIC,
        verdict="warn",
        severity="warn",
        found=found,
        expected=expected,
        why=why,
        mend=mend,
    )
