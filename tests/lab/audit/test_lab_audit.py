"""Audits of a lab's fleet: facts of its hosts, and faults of its network that are found by name."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import lab_name

from cwdp.cli import main
from manager.config import ProbeSettings
from manager.probing.probe_graph import GraphNic, build
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.network import fabric
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PROBES = ProbeSettings(pairs_per_s=200.0, paths=8)
LEAVES, SPINES, HOSTS = 3, 2, 2
NICS = LEAVES * HOSTS
BETWEEN = 2 * LEAVES * SPINES
MISWIRED = "h3"


class Audited:
    """A fleet in a lab, and `cwdp audit` there."""

    def __init__(self, lab: Lab, fleet: Fleet) -> None:
        self._fleet = fleet
        self.names = {
            str(address): switch
            for switch in lab.topology.switches
            for address in lab.topology.router_addresses(switch)
        }

    def cwdp(self, *arguments: str) -> Result:
        self._fleet.check()
        return CliRunner().invoke(main, [*arguments, "--manager", f"unix://{self._fleet.socket}"])

    def audit(self, *arguments: str) -> dict[str, Any]:
        done = self.cwdp("audit", "run", "--json", *arguments)
        assert done.exit_code in (0, 1, 3), done.output
        answer: dict[str, Any] = json.loads(done.stdout)["audit"]
        return answer

    def network(self) -> tuple[dict[str, Any], set[tuple[str, str, str]]]:
        """An audit of the network, and what fails or is an outlier there, by the lab's names."""
        audit = self.audit("--level", "network")
        wrong = [row for row in audit["results"] if row["verdict"] in ("fail", "outlier")]
        return audit, {(row["check"], row["host"], self._named(row["subject"])) for row in wrong}

    def _named(self, subject: str) -> str:
        for address, switch in self.names.items():
            subject = " ".join(switch if word == address else word for word in subject.split(" "))
        return subject

    def knows_fabric(self) -> bool:
        """Whether all links between switches are known, and where all NICs are."""
        answer = self.cwdp("fabric", "--json")
        known = json.loads(answer.stdout) if answer.exit_code == 0 else {"links": []}
        return len(known["links"]) == LEAVES * SPINES and known["nic_count"] == NICS


def _running(suffix: str, probes: ProbeSettings = PROBES, **spec: Any) -> Iterator[tuple[Lab, Audited]]:
    name = lab_name(suffix)
    lifecycle.up(LabSpec(name=name, leaves=LEAVES, spines=SPINES, hosts_per_leaf=HOSTS, **spec))
    try:
        lab = Lab.open(name)
        with Fleet(lab, probes=probes) as fleet:
            audited = Audited(lab, fleet)
            assert wait_for(audited.knows_fabric, 60.0)
            yield lab, audited
    finally:
        lifecycle.down(name)


@pytest.fixture(scope="module")
def audited() -> Iterator[tuple[Lab, Audited]]:
    yield from _running("aud", seed=3)


def test_hosts_tell_their_facts(audited: tuple[Lab, Audited]) -> None:
    audit = audited[1].audit()
    assert len(audit["hosts"]) == NICS
    assert not [row for row in audit["results"] if row["verdict"] in ("fail", "outlier", "divided")]
    assert not [row for row in audit["results"] if row["check"] == "answers"]
    assert audit["passed"]["mtu-alike"] == NICS


def test_a_network_that_is_well_passes(audited: tuple[Lab, Audited]) -> None:
    audit, wrong = audited[1].network()
    assert wrong == set()
    passed = audit["passed"]
    assert passed["path-mtu"] >= BETWEEN + NICS
    assert passed["dscp-kept"] >= BETWEEN + NICS
    assert passed["ecn-kept"] >= BETWEEN + NICS
    assert passed["reachable"] == NICS * (NICS - HOSTS) + NICS * (HOSTS - 1)
    assert (passed["probed"], passed["wiring"]) == (NICS, NICS)


def test_a_link_of_a_smaller_mtu_is_named(audited: tuple[Lab, Audited]) -> None:
    lab, told = audited
    faults.narrow(lab.name, "l2-s1", 1400)
    try:
        _, wrong = told.network()
    finally:
        faults.heal(lab.name, "l2-s1")
    assert wrong == {("path-mtu", "fabric", "l2 > s1"), ("path-mtu", "fabric", "s1 > l2")}


@pytest.mark.parametrize(("dscp", "ecn", "check"), [(0, None, "dscp-kept"), (None, 0, "ecn-kept")])
def test_a_link_that_changes_the_class_of_packets_is_named(
    audited: tuple[Lab, Audited], dscp: int | None, ecn: int | None, check: str
) -> None:
    lab, told = audited
    faults.remark(lab.name, "l3-s2", dscp, ecn, "s2>l3")
    try:
        _, wrong = told.network()
    finally:
        faults.heal(lab.name, "l3-s2")
    assert wrong == {(check, "fabric", "s2 > l3")}


def test_a_link_that_drops_is_named(audited: tuple[Lab, Audited]) -> None:
    lab, told = audited
    faults.drop(lab.name, "l1-s2", 0.1)
    try:
        wait_for(lambda: "lossy" in told.cwdp("link").stdout, 20.0)
        _, wrong = told.network()
    finally:
        faults.heal(lab.name, "l1-s2")
    assert {(check, host) for check, host, _ in wrong} == {("faults", "fabric")}
    assert {subject for _, _, subject in wrong} <= {"l1 - s2", "s2 - l1", "l1 > s2", "s2 > l1"}


def test_a_link_that_swallows_all_is_named_once(audited: tuple[Lab, Audited]) -> None:
    """By the paths over it; the ports of all pairs that it swallows are not told besides."""
    lab, told = audited
    faults.drop(lab.name, "l1-s2", 1.0)
    try:
        wait_for(lambda: "l1" in told.cwdp("link").stdout and "dead" in told.cwdp("link").stdout, 20.0)
        audit, wrong = told.network()
    finally:
        faults.heal(lab.name, "l1-s2")
    unreached = {(host, subject) for check, host, subject in wrong if check == "reachable"}
    assert unreached == {("fabric", "l1 - s2")}
    assert audit["passed"]["reachable"] < NICS * (NICS - 1)


def test_a_nic_at_another_leaf_is_named() -> None:
    for _, told in _running("miswired", seed=7, miswired=MISWIRED):
        _, wrong = told.network()
        assert ("wiring", MISWIRED, "nic0") in wrong
        assert {host for check, host, _ in wrong if check == "wiring"} == {MISWIRED}


@contextmanager
def _apart(lab: Lab, one: str, other: str) -> Iterator[None]:
    """The leaf of a host drops what that sends to another one."""
    [source], [destination] = (lab.topology.nics[host] for host in (one, other))
    rule = {
        "src": str(source.ipv4),
        "dst": str(destination.ipv4),
        "action": "FR_ACT_BLACKHOLE",
        "priority": 10,
    }
    with fabric.open_nodes(lab.topology, [source.leaf]) as nodes:
        nodes[source.leaf].ip.rule("add", **rule)
        try:
            yield
        finally:
            nodes[source.leaf].ip.rule("del", **rule)


def test_a_pair_that_is_not_probed_and_has_no_path_is_named() -> None:
    """Each NIC probes two others; the audit asks all."""
    for lab, told in _running("pairs", ProbeSettings(pairs_per_s=200.0, paths=8, degree=2), seed=5):
        hosts = [f"h{number}" for number in range(1, NICS + 1)]
        nics = [GraphNic(name=f"{host}/nic0", host=host, families=3) for host in hosts]
        probed = {tuple(pair) for pair in build(nics, degree=2, seed=1).tolist()}
        one, other = next(
            (hosts[a], hosts[b])
            for a, b in combinations(range(NICS), 2)
            if (a, b) not in probed and a // HOSTS != b // HOSTS
        )
        audit, wrong = told.network()
        assert wrong == set()
        assert audit["passed"]["reachable"] == NICS * (NICS - 1)
        with _apart(lab, one, other):
            audit, wrong = told.network()
        assert wrong == {("reachable", one, f"nic0 > {other}/nic0")}
        [row] = [row for row in audit["results"] if row["check"] == "reachable"]
        assert row["found"].startswith("no path answers, ")
        assert audit["passed"]["reachable"] == NICS * (NICS - 1) - 2
