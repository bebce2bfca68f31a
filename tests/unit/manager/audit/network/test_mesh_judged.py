"""What the mesh knows of the fabric, as results of an audit: faults, wiring, NICs that are not probed, slow links."""

import numpy as np
import pytest

from manager.audit.network.standing import DELAYS, FAULTS, PROBED, WIRING, Known, judged
from manager.audit.results import FABRIC
from manager.fabric.routes import DirectedLink
from manager.fabric.wiring import Miswired
from manager.faults.finding import Finding, Subject, cable
from tests.unit.manager.audit.network.clos import routes
from tests.unit.manager.audit.network.meshed import mesh


@pytest.mark.parametrize("seed", range(10))
def test_a_fabric_that_is_well_passes(seed: int) -> None:
    known = mesh(seed=seed)
    results, passed = judged(known)
    assert results == []
    assert passed == {
        FAULTS: len(known.routes.links), WIRING: 8, PROBED: 8, DELAYS: len(known.paths),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longer_ns", [15_000.0, 1e6])
def test_a_link_whose_paths_all_take_longer_is_named(seed: int, longer_ns: float) -> None:
    """One way of one link, which an eighth of all round trips cross there or back; so its other way, too."""
    known = mesh(DirectedLink("l2", "s3"), longer_ns, seed)
    results, _ = judged(known)
    assert {(one.check, one.host, one.verdict) for one in results} == {
        (DELAYS, FABRIC, "outlier")
    } or not results


def test_delays_that_differ_by_little_are_alike() -> None:
    assert judged(mesh(DirectedLink("l2", "s3"), 4_000.0))[0] == []


def test_nothing_is_said_of_delays_that_are_notmesh() -> None:
    known = mesh()
    known.rtt_ns[:] = np.nan
    results, passed = judged(known)
    assert (results, passed[DELAYS]) == ([], 0)
    assert judged(Known())[0] == []


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
