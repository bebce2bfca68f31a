"""Three tiers, and rails, on real packets: found as they are, faults named, queue pairs led round them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import waiting
from conftest import lab_name, need_ecmp_seeds
from msgspec.structs import replace

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.lab.truth.ecmp import Stream, switches_of
from tools.roce.flows import Flow
from tools.roce.generator import Generator
from tools.roce.jobs import pair_flows

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

RATE_BPS = 20_000_000

Hop = tuple[str, str]


class Known:
    """What a fleet knows of its lab, by the lab's names."""

    def __init__(self, lab: Lab, fleet: Fleet) -> None:
        self.lab, self.client = lab, ManagerClient(f"unix://{fleet.socket}")
        addresses = ((switch, lab.topology.router_addresses(switch)) for switch in lab.topology.switches)
        self.names = {str(address): switch for switch, both in addresses for address in both}

    def shown(self, node: str) -> str:
        return self.names.get(node, node)

    def fabric(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get("/v1/fabric")
        return answer

    def links(self) -> set[str]:
        return {f"{self.shown(link['a'])}-{self.shown(link['b'])}" for link in self.fabric()["links"]}

    def seats(self) -> dict[str, str]:
        return {
            nic: self.shown(switch["name"]) for switch in self.fabric()["switches"] for nic in switch["nics"]
        }

    def is_whole(self) -> bool:
        """Whether all links, and the leaf of each NIC, are known."""
        true_seats = {f"{host.name}/{nic.name}": nic.leaf for host in self.lab.hosts for nic in host.nics}
        true_links = {link.name for link in self.lab.topology.switch_links}
        return self.links() == true_links and self.seats() == true_seats

    def ways(self, src: str, dst: str) -> dict[int, tuple[str, ...]]:
        """The switches of each port's path."""
        pairs = self.client.get("/v1/path", {"src": src, "dst": dst})["pairs"]
        return {
            port["sport"]: tuple(self.shown(node or "?") for node in port["nodes"])
            for pair in pairs
            for port in pair["ports"]
        }

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        """Events of some kinds, and of what they tell."""
        found = self.client.get("/v1/events", {"limit": "1000"})["events"]
        return [(each["kind"], each["detail"]) for each in found if each["kind"] in kinds]


def until(condition: Any, what: str) -> None:
    def holds() -> bool:
        with suppress(ManagerError):
            return bool(condition())
        return False

    waiting.until(holds, what)


@pytest.fixture(scope="module")
def tiers() -> Iterator[Known]:
    """A fleet in a lab of two pods, which knows all of it."""
    need_ecmp_seeds()
    name = lab_name("tiers")
    lifecycle.up(
        LabSpec(
            name=name,
            pods=2,
            leaves=2,
            spines=2,
            cores=2,
            hosts_per_leaf=1,
            rate_bps=RATE_BPS,
            spine_rate_bps=RATE_BPS,
        )
    )
    try:
        lab = Lab.open(name)
        faults.prepare_silence(name, lab.topology)
        with (
            Fleet(
                lab,
                ProbeSettings(pairs_per_s=100.0, degree=3),
                roce=RoceConfig(dead_after_ms=100.0),
                pulse_interval_ms=20.0,
                planner=PlannerSettings(),
            ) as fleet,
            Truth(lab) as truth,
        ):
            wait_for_lock(fleet, truth)
            known = Known(lab, fleet)
            until(known.is_whole, "all links and NICs")
            yield known
    finally:
        lifecycle.down(name)


def test_all_three_tiers_are_found_and_paths_are_the_ways_that_packets_take(tiers: Known) -> None:
    lab = tiers.lab
    found = {tiers.shown(switch["name"]): switch["tier"] for switch in tiers.fabric()["switches"]}
    assert found == lab.topology.tiers
    assert tiers.fabric()["suspects"] == []
    until(lambda: set(tiers.ways("h1", "h4").values()) == set(lab.topology.ways("p1l1", "p2l2")), "all ways")
    source, target = lab.host("h1").nics[0].ipv4, lab.host("h4").nics[0].ipv4
    told = tiers.ways("h1", "h4")
    truth = switches_of(lab, [Stream("h1", source, target, port) for port in told])
    assert {stream.sport: way for stream, way in truth.items()} == told


def test_a_link_to_a_core_that_goes_silent_is_named_and_queue_pairs_are_led_round_it(tiers: Known) -> None:
    lab = tiers.lab
    pairs = [("h1", "h3"), ("h2", "h4"), ("h3", "h1"), ("h4", "h2")]
    flows = pair_flows(
        lab.topology, pairs, 5, mtu=1024, window=16, message_bytes=32_768, rate_bps=2_000_000, retries=1000
    )
    with Generator(flows, lab.popen, lab.run_dir, snapshot_s=0.5) as generator:
        generator.start()
        until(lambda: all(_are_apart(*_hops(tiers, flow)) for flow in flows), "a way round for each")
        core = _hops(tiers, flows[0])[0][2]
        link = lab.topology.link("-".join(core))
        before = len(tiers.events("link_silent"))
        faults.drop(lab.name, link.name, 1.0)
        try:
            until(lambda: len(tiers.events("link_silent")) > before, "the silent link to be named")
            until(lambda: not any(core in _hops(tiers, flow)[0] for flow in flows), "other ways")
        finally:
            faults.drop(lab.name, link.name, 0.0)
        until(lambda: tiers.events("link_silent_over"), "its end")
        result = generator.stop()
    named = [detail.partition(":")[0] for _, detail in tiers.events("link_silent")]
    assert [" - ".join(map(tiers.shown, each.split(" - "))) for each in named] == [
        " - ".join(link.name.split("-"))
    ]
    assert result["total"]["icrc_errors"] == 0
    assert not any(flow["failed"] for flow in result["flows"])


def _are_apart(primary: list[Hop], backup: list[Hop]) -> bool:
    """Whether two paths are known that share the NICs' own links and no other."""
    if not primary or not backup:
        return False
    return set(primary) & set(backup) == {primary[0], primary[-1]}


def _hops(known: Known, flow: Flow) -> tuple[list[Hop], list[Hop]]:
    """The links of the path of a queue pair's data, and of its backup's, by the lab's names."""
    query = {
        "host": flow.source.host,
        "nic": "nic0",
        "dst_addr": str(flow.target.address),
        "qpn": str(flow.remote_qpn),
    }
    answer = known.client.get("/v1/qp-view", query)
    ways = answer["path"], answer["backup"] or {"hops": []}
    first, second = ([(known.shown(hop["a"]), known.shown(hop["b"])) for hop in way["hops"]] for way in ways)
    return first, second


@pytest.mark.parametrize(
    ("spec", "at", "expected"),
    [
        (LabSpec(leaves=4, spines=2, hosts_per_leaf=2, rails=2, miswired="h3"), "l1", "l3"),
        (LabSpec(leaves=3, spines=2, hosts_per_leaf=2, nics=2, miswired="h3", seed=7), "l1", "l2"),
        (LabSpec(leaves=3, spines=2, hosts_per_leaf=2, miswired="h3", seed=7), "l3", "l2"),
    ],
    ids=["rails", "two NICs", "one NIC"],
)
def test_a_nic_in_the_wrong_port_is_one_event_and_its_neighbour_is_not_accused(
    spec: LabSpec, at: str, expected: str, spare_name: str
) -> None:
    lifecycle.up(replace(spec, name=spare_name))
    lab = Lab.open(spare_name)
    with Fleet(lab, probes=ProbeSettings(pairs_per_s=20.0, paths=4)) as fleet:
        known = Known(lab, fleet)
        until(known.is_whole, "all links and NICs")
        rails = {rail["ifname"]: sorted(map(known.shown, rail["leaves"])) for rail in known.fabric()["rails"]}
        assert rails == ({"nic0": ["l1", "l3"], "nic1": ["l2", "l4"]} if spec.rails else {})
        until(lambda: known.events("miswired"), "the NIC in the wrong port")
        told = [
            " ".join(map(known.shown, detail.split(":")[0].split())) for _, detail in known.events("miswired")
        ]
        assert told == [f"h3/nic0 is at {at} and belongs at {expected}"]
        assert [each["what"] for each in known.fabric()["suspects"]] == ["h3/nic0"]
