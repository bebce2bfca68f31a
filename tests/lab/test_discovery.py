"""Paths found on real packets: what the fleet comes to know of a lab against what the lab is."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import waiting
from conftest import lab_name

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from manager.config import ProbeSettings
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.network import netns
from tools.lab.truth.spines import spines_by_port

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

PROBES = ProbeSettings(pairs_per_s=20.0, paths=4)


class Running:
    """A fleet in a lab, and what it knows of it."""

    def __init__(self, lab: Lab, fleet: Fleet) -> None:
        self.lab = lab
        self.client = ManagerClient(f"unix://{fleet.socket}")
        self.names = {
            str(address): switch
            for switch in lab.topology.switches
            for address in lab.topology.router_addresses(switch)
        }

    def fabric(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get("/v1/fabric")
        return answer

    def links(self) -> set[str]:
        """Links between switches that answer, by the lab's names."""
        ends = ((self.names.get(link["a"]), self.names.get(link["b"])) for link in self.fabric()["links"])
        return {f"{a}-{b}" for a, b in ends if a and b}

    def seats(self) -> dict[str, str]:
        return {
            nic: self.names.get(switch["name"], switch["name"])
            for switch in self.fabric()["switches"]
            for nic in switch["nics"]
        }

    def paths(self, src: str, dst: str) -> dict[int, list[str]]:
        """The switches of each port's path."""
        [pair] = self.client.get("/v1/path", {"src": src, "dst": dst})["pairs"]
        return {
            port["sport"]: [self.names.get(node, "?") for node in port["nodes"]] for port in pair["ports"]
        }

    def suspects(self) -> list[tuple[str, str]]:
        """What looks wrongly plugged in, and the switch where it should be."""
        return [(each["what"], self.names.get(each["expected"], "?")) for each in self.fabric()["suspects"]]

    def true_links(self) -> set[str]:
        return {f"{leaf}-{spine}" for leaf in self.lab.topology.leaves for spine in self.lab.topology.spines}

    def true_seats(self) -> dict[str, str]:
        return {f"{host.name}/{nic.name}": nic.leaf for host in self.lab.hosts for nic in host.nics}


def until(condition: Callable[[], bool], what: str) -> None:
    def is_told() -> bool:
        with suppress(ManagerError):
            return condition()
        return False

    waiting.until(is_told, what)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    name = lab_name("disc")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, leaves=3, spines=3))
    try:
        lab = Lab.open(name)
        with Fleet(lab, probes=PROBES) as fleet:
            found = Running(lab, fleet)
            until(lambda: found.links() == found.true_links(), "all links")
            until(lambda: found.seats() == found.true_seats(), "all NICs")
            ends = {"src": "h1", "dst": "h6"}
            until(lambda: any(found.client.get("/v1/path", ends)["pairs"]), "paths")
            yield found
    finally:
        lifecycle.down(name)


def test_the_fabric_is_found_as_it_is(running: Running) -> None:
    answer = running.fabric()
    tiers = {running.names[switch["name"]]: switch["tier"] for switch in answer["switches"]}
    assert tiers == {name: 1 if name.startswith("l") else 2 for name in running.lab.topology.switches}
    assert answer["suspects"] == []
    assert answer["set_aside"] == []


def test_traced_ports_take_the_spines_that_packets_take(running: Running) -> None:
    lab = running.lab
    source, target = lab.hosts[0], lab.hosts[-1]
    traced = running.paths(source.name, target.name)
    ports = sorted(traced)[:8]
    truth = spines_by_port(lab, source, target, ports)
    told = {port: traced[port][1] for port in ports}
    assert sum(truth.get(port) == spine for port, spine in told.items()) >= len(ports) - 1


def test_a_link_that_dies_is_gone_and_comes_back(running: Running) -> None:
    faults.cut(running.lab.name, "l1-s2")
    try:
        until(lambda: running.links() == running.true_links() - {"l1-s2"}, "the cut to be known")
        until(lambda: running.seats() == running.true_seats(), "all NICs at their leaves")
    finally:
        faults.heal(running.lab.name, "l1-s2")
    until(lambda: running.links() == running.true_links(), "the link to be back")


def test_a_silent_link_stays_in_the_routes(running: Running) -> None:
    faults.drop(running.lab.name, "l1-s3", 1.0)
    try:
        time.sleep(4.0)
        assert running.links() == running.true_links()
    finally:
        faults.heal(running.lab.name, "l1-s3")


def test_over_ipv6_a_host_at_the_wrong_leaf_is_named(spare_name: str) -> None:
    lifecycle.up(LabSpec(name=spare_name, hosts_per_leaf=3, spines=2, miswired="h2"))
    lab = Lab.open(spare_name)
    with Fleet(lab, probes=ProbeSettings(pairs_per_s=20.0, paths=4, family="6")) as fleet:
        found = Running(lab, fleet)
        until(lambda: found.links() == found.true_links(), "all links")
        until(lambda: found.seats() == found.true_seats(), "all NICs")
        assert found.true_seats()["h2/nic0"] == "l2"
        until(lambda: found.suspects() == [("h2/nic0", "l1")], "the one at the wrong leaf, and no other")


@pytest.fixture
def quiet(spare_name: str) -> Iterator[Running]:
    """A fleet in a lab whose first spine never answers, and whose leaves answer once a second and peer."""
    lifecycle.up(LabSpec(name=spare_name, hosts_per_leaf=2))
    lab = Lab.open(spare_name)
    for switch in lab.topology.switches:
        with netns.netns_enter(lab.topology.netns(switch)):
            if switch == "s1":
                _set("icmp_ratemask", 1 << 11 | 1 << 3)
                _set("icmp_ratelimit", 10**9)
            elif switch in lab.topology.leaves:
                _set("icmp_ratemask", 1 << 11 | 1 << 3)
                _set("icmp_ratelimit", 100)
    with Fleet(lab, probes=PROBES) as fleet:
        yield Running(lab, fleet)


def _set(name: str, value: int) -> None:
    with open(f"/proc/sys/net/ipv4/{name}", "w") as setting:  # noqa: PTH123
        setting.write(str(value))


def test_silent_and_limited_hops_are_lived_with(quiet: Running) -> None:
    others = {link for link in quiet.true_links() if not link.endswith("s1")}

    def is_known() -> bool:
        fabric = quiet.fabric()
        links = {tuple(quiet.names.get(link[end], "?") for end in "ab") for link in fabric["links"]}
        return {f"{a}-{b}" for a, b in links if "?" not in a + b} >= others and any(
            "?" in link for link in links
        )

    until(is_known, "the other links, and one unknown")
    until(lambda: quiet.seats() == quiet.true_seats(), "all NICs")
