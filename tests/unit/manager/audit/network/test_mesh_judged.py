"""What the mesh knows of the fabric, as results of an audit: faults, wiring, dead paths, NICs that are not probed, slow links."""

import numpy as np
import pytest

from manager.audit.network.standing import DELAYS, FAULTS, PROBED, REACHABLE, WIRING, Known, judged
from manager.audit.results import FABRIC
from manager.fabric.routes import DirectedLink, PathName
from manager.fabric.wiring import Miswired
from manager.faults.finding import Finding, Subject, cable
from tests.unit.manager.audit.network.clos import address, routes

USUAL_NS, SPREAD_NS = 50_000.0, 300.0


def _known(slow: DirectedLink | None = None, longer_ns: float = 30_000.0, seed: int = 1) -> Known:
    """Round trips of all paths below 4 leaves and 4 spines, back by the same spine; one link may be slow."""
    known, rng = routes(4, 4, 2), np.random.default_rng(seed)
    paths, crossed = [], []
    for src, dst_addr, sport in known.paths:
        dst = f"h{dst_addr.rpartition('.')[2]}/eth1"
        there = known.paths[PathName(src, dst_addr, sport)]
        back = known.paths[PathName(dst, address(int(src[1 : src.index("/")])), sport)]
        paths.append((src, dst, sport))
        crossed.append([*there, *back])
    rtt_ns = USUAL_NS + rng.exponential(SPREAD_NS, len(paths))
    matrix = np.array(crossed, np.int32)
    if slow is not None:
        rtt_ns[(matrix == known.links.index(slow)).any(axis=1)] += longer_ns
    sent = np.full(len(paths), 100)
    return Known(
        paths=paths, sent=sent, lost=np.zeros_like(sent), rtt_ns=rtt_ns, crossed=matrix, routes=known,
        nics={f"h{i}/eth1": "ok" for i in range(1, 9)},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_a_fabric_that_is_well_passes(seed: int) -> None:
    known = _known(seed=seed)
    results, passed = judged(known)
    assert results == []
    assert passed == {
        FAULTS: len(known.routes.links), WIRING: 8, PROBED: 8, REACHABLE: len(known.paths), DELAYS: len(known.paths),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longer_ns", [15_000.0, 1e6])
def test_a_link_whose_paths_all_take_longer_is_named(seed: int, longer_ns: float) -> None:
    """One way of one link, which an eighth of all round trips cross there or back; so its other way, too."""
    known = _known(DirectedLink("l2", "s3"), longer_ns, seed)
    results, _ = judged(known)
    assert {(one.check, one.host, one.verdict) for one in results} == {
        (DELAYS, FABRIC, "outlier")
    } or not results


def test_delays_that_differ_by_little_are_alike() -> None:
    assert judged(_known(DirectedLink("l2", "s3"), 4_000.0))[0] == []


def test_nothing_is_said_of_delays_that_are_not_known() -> None:
    known = _known()
    known.rtt_ns[:] = np.nan
    results, passed = judged(known)
    assert (results, passed[DELAYS]) == ([], 0)
    assert judged(Known())[0] == []


def test_paths_that_bring_nothing_back_are_told_by_the_nic_that_they_start_at() -> None:
    known = _known()
    mine = [row for row, (src, _, _) in enumerate(known.paths) if src == "h3/eth1"][:5]
    known.lost[mine] = known.sent[mine]
    known.lost[mine[-1] + 1] = 99
    results, passed = judged(known)
    assert [(one.check, one.host, one.subject, one.verdict) for one in results] == [
        (REACHABLE, "h3", "eth1", "fail")
    ]
    assert results[0].found.startswith("5 paths bring nothing back: to ")
    assert results[0].found.endswith("and 2 more")
    assert passed[REACHABLE] == len(known.paths) - 5


def test_paths_of_few_probes_are_not_judged() -> None:
    known = _known()
    known.sent[:] = known.lost[:] = 4
    results, passed = judged(known)
    assert (results, passed[REACHABLE]) == ([], 0)


def test_what_is_found_plugged_in_wrongly_or_not_probed_is_told() -> None:
    finding = Finding(
        number=1, kind="lossy", subject=cable(DirectedLink("l1", "s1")), confidence=1.0,
        evidence=["3 of 100 lost"], start_s=0.0,
    )  # fmt: skip
    host = Finding(
        number=2, kind="slow_sender", subject=Subject("host", "h2"), confidence=1.0, evidence=[], start_s=0.0
    )
    results, passed = judged(
        Known(
            findings=[finding, host],
            miswired=[Miswired("h3/eth1", "l4", "l2", "its like are at l2")],
            nics={"h1/eth1": "ok", "h3/eth1": "ok", "h4/eth1": "no_carrier", "h5/eth1": "host_lost"},
            routes=routes(),
        )
    )
    assert [(one.check, one.host, one.subject, one.verdict) for one in results] == [
        (FAULTS, FABRIC, "l1 - s1", "fail"),
        (FAULTS, "h2", "", "fail"),
        (WIRING, "h3", "eth1", "fail"),
        (PROBED, "h4", "eth1", "fail"),
        (PROBED, "h5", "eth1", "unknown"),
    ]
    assert passed[PROBED] == 2
