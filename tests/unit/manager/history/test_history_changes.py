"""What is told of findings and of the fabric: each change once, and enough to know how it was."""

from ipaddress import IPv4Address

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.finding import Finding, Findings, cable
from manager.history import samples
from manager.history.changes import ELEMENTS_A_RECORD, Elements, FindingChanges, difference
from manager.history.records import FabricRecord
from manager.ib.links import LinkRates
from manager.links.loads import LinkLoads
from manager.paths.owd import Extremes


def _finding(start_s: float, name: str = "s1") -> Finding:
    subject = cable(DirectedLink("l1", name))
    return Finding(number=0, kind="lossy", subject=subject, confidence=0.5, evidence=["e"], start_s=start_s)


def test_a_finding_is_told_when_it_begins_changes_and_ends() -> None:
    findings, changes = Findings(), FindingChanges()
    one = findings.open(_finding(1.0))
    assert [(each.number, each.end_s) for each in changes.step(findings, 2.0)] == [(1, None)]
    assert changes.step(findings, 3.0) == []
    one.confidence = 0.501
    assert changes.step(findings, 3.5) == []
    one.confidence, one.evidence = 0.9, ["e", "f"]
    assert [(each.time_s, each.confidence) for each in changes.step(findings, 4.0)] == [(4.0, 0.9)]
    short = findings.open(_finding(4.1, "s2"))
    findings.close(short, 4.2)
    findings.close(one, 4.5)
    told = [(each.number, each.time_s, each.end_s) for each in changes.step(findings, 5.0)]
    assert told == [(2, 4.1, None), (2, 5.0, 4.2), (1, 5.0, 4.5)]
    assert changes.step(findings, 6.0) == []


def test_who_begins_to_lead_tells_what_holds_and_not_what_held() -> None:
    findings, changes = Findings(), FindingChanges()
    findings.close(findings.open(_finding(1.0)), 2.0)
    findings.open(_finding(3.0))
    changes.skip(findings)
    changes.begin_anew()
    assert [each.number for each in changes.step(findings, 4.0)] == [2]
    changes.begin_anew()
    assert [each.number for each in changes.step(findings, 5.0)] == [2]


def _apply(known: Elements, records: list[FabricRecord]) -> Elements:
    for record in records:
        known = {name: data for name, data in known.items() if name not in record.gone}
        known |= {(each.what, each.name): each.data for each in record.present}
    return known


@pytest.mark.parametrize("count", [0, 1, ELEMENTS_A_RECORD, 3 * ELEMENTS_A_RECORD + 7])
def test_differences_lead_from_one_fabric_to_the_other(count: int) -> None:
    rng = np.random.default_rng(count)
    before: Elements = {("switch", str(IPv4Address(i))): {"tier": 1} for i in range(count)}
    after = {name: data for name, data in before.items() if rng.random() < 0.5}
    after |= {("seat", f"h{i}/e"): {"switches": ["a"]} for i in range(count // 2)}
    for name in list(after)[::3]:
        after[name] = {"tier": 2}
    records = difference(before, after, 1.0)
    assert _apply(before, records) == after
    assert all(
        len(each.present) <= ELEMENTS_A_RECORD and len(each.gone) <= ELEMENTS_A_RECORD for each in records
    )
    assert difference(after, after, 1.0) == []


def _routes(nics_a_leaf: int) -> Routes:
    up = [DirectedLink(f"h{i}/e", f"l{i // nics_a_leaf}") for i in range(2 * nics_a_leaf)]
    return Routes(1, tuple(up))


def test_delays_between_leaves_are_those_of_all_their_nics() -> None:
    keys = [("h0/e", "h2/e", 1, 2), ("h1/e", "h3/e", 1, 2), ("h0/e", "h1/e", 1, 2), ("h9/e", "h0/e", 1, 2)]
    nan = np.nan
    delays = {
        "fwd_min_ns": np.array([5.0, 4.0, 1.0, 0.0]),
        "fwd_p50_ns": np.array([10.0, 20.0, nan, 0.0]),
        "fwd_p99_ns": np.array([90.0, 30.0, nan, 1e9]),
        "rev_min_ns": np.array([7.0, nan, 2.0, 0.0]),
        "rev_p50_ns": np.array([8.0, nan, 3.0, 0.0]),
        "rev_p99_ns": np.array([9.0, nan, 4.0, 0.0]),
    }
    paths = Extremes(keys=keys, sent=np.array([10, 30, 0, 5]), lost=np.array([4, 0, 0, 5]), delays=delays)
    found = samples.of_leaf_pairs(paths, _routes(2))
    assert found is not None
    rows = {
        name: {field: float(values[i]) for field, values in found.values.items()}
        for i, name in enumerate(found.names)
    }
    assert rows["l0", "l1"] == {"owd_p50_ns": 15.0, "owd_p99_ns": 90.0, "owd_min_ns": 4.0, "loss": 0.1}
    assert rows["l1", "l0"] == {"owd_p50_ns": 8.0, "owd_p99_ns": 9.0, "owd_min_ns": 7.0, "loss": 0.1}
    assert rows["l0", "l0"]["owd_min_ns"] == 1.0
    assert np.isnan(rows["l0", "l0"]["loss"])
    assert len(rows) == 3
    assert samples.of_leaf_pairs(paths, Routes()) is None


def test_links_that_were_not_measured_of_late_are_left_out() -> None:
    routes = _routes(1)
    numbers = np.arange(2.0)
    loads = LinkLoads(
        routes=routes, time_s=5.0, queue_p50_ns=numbers, queue_p99_ns=numbers, load_bps=numbers, loss=numbers
    )
    found = samples.of_links(loads, 6.0)
    assert found is not None
    assert tuple(found.names) == routes.links
    assert samples.of_links(loads, 60.0) is None
    assert samples.of_links(LinkLoads(), 0.0) is None


def test_loads_of_infiniband_are_measured_beside_the_others() -> None:
    ib = LinkRates([DirectedLink("h0/mlx5_0", "l9")], np.array([7.0]), np.array([100.0]))
    alone = samples.with_infiniband(None, [ib])
    assert alone is not None
    assert (alone.names, alone.values["load_bps"].tolist()) == ([("h0/mlx5_0", "l9")], [7.0])
    numbers = np.arange(2.0)
    loads = LinkLoads(
        routes=_routes(1),
        time_s=5.0,
        queue_p50_ns=numbers,
        queue_p99_ns=numbers,
        load_bps=numbers,
        loss=numbers,
    )
    both = samples.with_infiniband(samples.of_links(loads, 6.0), [ib])
    assert both is not None
    assert both.names == [*_routes(1).links, ("h0/mlx5_0", "l9")]
    assert both.values["load_bps"].tolist() == [0.0, 1.0, 7.0]
    assert np.isnan(both.values["queue_p99_ns"][2])
    assert samples.with_infiniband(None, []) is None
