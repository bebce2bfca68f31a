"""What the mesh knows of the fabric while it is audited: faults, wiring, delays, NICs that are not probed. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.audit.judging.alike import LEAST_MEMBERS, spread
from manager.audit.results import FABRIC, Result
from manager.fabric.routes import Routes
from manager.fabric.wiring import Miswired
from manager.faults.finding import Finding, cable
from manager.ib.subnets import SubnetNow

FAULTS, WIRING, PROBED, DELAYS = "faults", "wiring", "probed", "delay-alike"
SHARE = 0.9
"""Of the paths over a link that are slow: so many, and it is the link."""

MOST_SLOW = 0.4
"""Of all paths: if more differ there is no telling who is slow."""

TOLERANCE, LEAST_NS = 0.25, 5_000.0
"""Delays that differ by less are alike: a share of the median, and ns."""

MOST_PATHS = 20
"""Of each NIC and of the fabric: that many are told one by one."""


@dataclass(frozen=True)
class Known:
    """What is known now.

    Attributes:
        findings: that hold.
        miswired: what seems to be plugged in wrongly.
        nics: whether each NIC of the hosts audited is probed, or why not (`manager.hosts.members.Reason`).
        paths: source and destination NIC and source port of each path probed, shape (paths,).
        sent, lost: probes of each of late, shape (paths,).
        rtt_ns: the least round trip of each, NaN for unknown, shape (paths,).
        crossed: the links of each, -1 behind the last, shape (paths, most links).
        routes: whose links these are.
        subnets: those of InfiniBand that are read.
    """

    findings: Sequence[Finding] = ()
    miswired: Sequence[Miswired] = ()
    nics: Mapping[str, str] = field(default_factory=dict)
    paths: Sequence[tuple[str, str, int]] = ()
    sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    lost: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rtt_ns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    crossed: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    routes: Routes = field(default_factory=Routes)
    subnets: Sequence[SubnetNow] = ()


def judged(known: Known) -> tuple[list[Result], dict[str, int]]:
    """Results, and how many links, NICs or paths pass each check."""
    results = [*_faults(known.findings), *_wiring(known.miswired), *_probed(known.nics)]
    slow, alike = _delays(known)
    links = len(known.routes.links)
    passed = {
        FAULTS: max(links - sum(len(each.subject.links) for each in known.findings), 0),
        WIRING: len(known.nics) - len(known.miswired),
        PROBED: sum(reason == "ok" for reason in known.nics.values()),
        DELAYS: alike,
    }
    return [*results, *slow], passed


def _faults(findings: Iterable[Finding]) -> Iterable[Result]:
    for one in findings:
        is_ours = one.subject.kind in ("nic", "host")
        yield Result(
            check=FAULTS,
            host=one.subject.name.partition("/")[0] if is_ours else FABRIC,
            subject=one.subject.name.partition("/")[2] if is_ours else one.subject.name,
            verdict="warn" if one.kind == "clock" else "fail",
            severity="fail",
            found=f"{one.kind}: {'; '.join(one.evidence[:2])}",
            expected="nothing found",
            why="what is lost or waits there, every job waits for",
            mend="cwdp link shows it; see the runbook of its alert",
            reference="docs/troubleshooting.md",
        )


def _wiring(miswired: Iterable[Miswired]) -> Iterable[Result]:
    for one in miswired:
        host, _, ifname = one.what.rpartition("/")
        yield Result(
            check=WIRING,
            host=host or FABRIC,
            subject=ifname or one.what,
            verdict="fail",
            severity="fail",
            found=f"at {one.at}" if one.at else "not there",
            expected=f"at {one.expected}" if one.expected else "where its like are",
            reason=one.reason,
            why="a NIC on another rail's leaf crosses spines where all others do not",
            mend="plug it in where it belongs; cwdp fabric shows both places",
        )


def _probed(nics: Mapping[str, str]) -> Iterable[Result]:
    for nic, reason in sorted(nics.items()):
        if reason != "ok":
            yield Result(
                check=PROBED,
                host=host_of(nic),
                subject=nic.partition("/")[2],
                verdict="unknown" if reason == "host_lost" else "fail",
                severity="fail",
                found="" if reason == "host_lost" else reason.replace("_", " "),
                expected="" if reason == "host_lost" else "ok",
                reason="its host is not heard of" if reason == "host_lost" else "",
                why="a NIC that is not probed is not in the mesh: nobody knows its paths",
                mend="cwdp doctor on its host says what is missing",
            )


def _delays(known: Known) -> tuple[list[Result], int]:
    """Links whose paths all take longer than others of as many links, and paths that do by themselves."""
    hops = np.count_nonzero(known.crossed >= 0, axis=1) if len(known.crossed) else np.zeros(0, np.int64)
    slow = np.zeros(len(known.paths), bool)
    judged_rows, medians = np.zeros(len(known.paths), bool), np.full(len(known.paths), np.nan)
    for count in np.unique(hops[hops > 0]).tolist():
        rows = np.flatnonzero((hops == count) & np.isfinite(known.rtt_ns))
        if len(rows) < LEAST_MEMBERS:
            continue
        found = spread(known.rtt_ns[rows].tolist(), TOLERANCE, is_share=True)
        judged_rows[rows], medians[rows] = True, found.median
        late = np.array(found.apart) & (known.rtt_ns[rows] > found.median + LEAST_NS)
        if np.count_nonzero(late) <= MOST_SLOW * len(rows):
            slow[rows] = late
    links = _slow_links(known, slow, judged_rows)
    results = [_slow_link(known, link, slow, medians) for link in links]
    explained = np.isin(known.crossed, links).any(axis=1) if len(known.crossed) else slow
    alone = np.flatnonzero(slow & ~explained).tolist()
    results += [_slow_path(known, row, medians[row]) for row in alone[:MOST_PATHS]]
    return results, int(np.count_nonzero(judged_rows & ~slow))


def _slow_links(known: Known, slow: NDArray[np.bool_], judged_rows: NDArray[np.bool_]) -> list[int]:
    """The links with the most slow paths, one after the other, of those nearly all of whose paths are slow."""
    left, chosen = slow.copy(), list[int]()
    if not len(known.crossed):
        return chosen
    size = len(known.routes.links) + 1
    total = np.bincount(known.crossed[judged_rows].ravel() + 1, minlength=size)[1:]
    while True:
        counts = np.bincount(known.crossed[left].ravel() + 1, minlength=size)[1:]
        counts[(total == 0) | (counts < SHARE * total) | (counts < LEAST_MEMBERS)] = 0
        if not counts.any():
            return chosen
        link = int(counts.argmax())
        chosen.append(link)
        left &= ~(known.crossed == link).any(axis=1)


def _slow_link(known: Known, link: int, slow: NDArray[np.bool_], medians: NDArray[np.float64]) -> Result:
    rows = np.flatnonzero(slow & (known.crossed == link).any(axis=1))
    longer_ns = float(np.median(known.rtt_ns[rows] - medians[rows]))
    name = cable(known.routes.links[link]).name
    return _slow(FABRIC, name, f"{len(rows)} paths over it take {longer_ns / 1e3:,.1f} us longer")


def _slow_path(known: Known, row: int, median_ns: float) -> Result:
    src, dst, sport = known.paths[row]
    longer_us = (known.rtt_ns[row] - median_ns) / 1e3
    return _slow(
        host_of(src),
        f"{src.partition('/')[2]} > {dst} by port {sport}",
        f"it takes {longer_us:,.1f} us longer",
    )


def _slow(host: str, subject: str, found: str) -> Result:
    return Result(
        check=DELAYS,
        host=host,
        subject=subject,
        verdict="outlier",
        severity="warn",
        found=f"{found} than most with as many links, there and back",
        expected="as the others",
        why="a cable, a transceiver or a switch's setting makes it longer, or it leads another way",
        mend="compare the ends of the link with others: speed, FEC, length of the cable",
    )
