"""What is read of the manager's state, and kept for a thread."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address
from manager.causes.links import LinksNow
from manager.fabric.routes import DirectedLink, Routes
from manager.jobs.flows import Flow
from manager.links.loads import LinkLoads
from manager.links.meter import Crossings
from tests.unit.manager.causes.cases import finding

LINKS = (DirectedLink("a/nic0", "l1"), DirectedLink("l1", "b/nic0"))
FLOW = Flow("a/nic0", "b/nic0", 7)
NAME = ("a", "nic0")


def reads(meter: Any, loads: LinkLoads) -> LinksNow:
    rows = np.zeros(1, QP_ROW)
    rows["addr"], rows["qpn"], rows["direction"] = (
        np.frombuffer(packed_address("10.0.0.2"), np.uint8),
        7,
        EGRESS,
    )
    findings = SimpleNamespace(current={1: finding("silent", "l1", "b/nic0")})
    watch: Any = SimpleNamespace(loads=loads, findings=findings, meter=meter)
    traffic: Any = SimpleNamespace(queue_pairs=SimpleNamespace(tables={NAME: SimpleNamespace(rows=rows)}))
    members: Any = SimpleNamespace(nics_by_packed_address={packed_address("10.0.0.2"): "b/nic0"})
    return LinksNow(watch, traffic, members)


def test_links_of_flows_with_what_is_known_of_them() -> None:
    routes = Routes(version=1, links=LINKS)
    loads = LinkLoads(routes=routes, queue_p99_ns=np.array([1.0, 2.0]))
    pairs = np.array([0, 0]), np.array([0, 1])
    nobody = np.zeros(1, np.intp), ()
    known = {NAME: Crossings(b"", *pairs, np.ones(2), np.ones(1, bool), *nobody, *nobody)}
    meter = SimpleNamespace(routes=routes, known=known)
    links_of = reads(meter, loads)()
    known.clear()
    found = links_of([FLOW])
    assert found.of == {FLOW: {0, 1}}
    assert (found.names, [each.kind for each in found.findings]) == (LINKS, ["silent"])
    assert found.name(1) == "l1 > b/nic0"


def test_before_there_is_a_model_or_while_it_is_changed_only_findings_are_known() -> None:
    loads = LinkLoads(routes=Routes(version=1, links=LINKS), queue_p99_ns=np.ones(2))
    other = SimpleNamespace(routes=Routes(version=2, links=LINKS), known={})
    for meter in (None, other):
        found = reads(meter, loads)()([FLOW])
        assert (found.of, len(found.names), len(found.findings)) == ({}, 0, 1)
