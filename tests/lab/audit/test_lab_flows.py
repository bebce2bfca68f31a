"""Flows that agents of a lab are ordered to send: each fills the path of its source port, and no other."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence

import pytest
from click.testing import CliRunner
from conftest import lab_name

from cwdp.cli import main
from cwdp.shared.bus.audits import Flow, FlowOrder, FlowReport, FlowTold
from cwdp.shared.bus.subjects import down, up
from manager.bus.connection import manager_bus
from manager.config import PlannerSettings
from manager.identity.authority import Authority
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.network import fabric
from tools.lab.network.netns import enter_for_good, in_thread
from tools.lab.truth.ecmp import Stream, switches_of
from tools.roce.flows import Endpoint, verbs_flow
from tools.roce.generator import Generator
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SPINES, HOSTS = 2, 2
BEGIN_S, LASTS_S, LONGER_S = 8.0, 2.0, 6.0
ANSWERS_S, REPEAT_S = 60.0, 1.0
OF_OTHERS = 0.25
"""Of what a flow's spine sends: probes, which go by all."""

LEAST = 0.9
"""Of a link's rate; 0.985 is all that it can carry of payload."""


class Ordering:
    """Orders flows as a manager does.

    Args:
        lab: with a fleet.
        fleet: its agents.
    """

    def __init__(self, lab: Lab, fleet: Fleet) -> None:
        self.lab = lab
        self._fleet = fleet
        self._number = 0

    def order(
        self,
        pairs: Sequence[tuple[str, str, int]],
        *,
        lasts_s: float = LASTS_S,
        cap_bps: int = 0,
        force: bool = False,
    ) -> dict[int, FlowTold]:
        """A round of flows from a host to another, by their source ports; what is told of each, numbered from 1."""
        self._number += 1
        ends: dict[str, list[Flow]] = {}
        for number, (source, target, sport) in enumerate(pairs, start=1):
            for host, peer, sends in ((source, target, True), (target, source, False)):
                address = str(self.lab.host(peer).nics[0].ipv4)
                flow = Flow(id=number, nic="nic0", peer_addr=address, sends=sends, sport=sport)
                ends.setdefault(host, []).append(flow)
        orders = [
            FlowOrder(
                host=host,
                number=self._number,
                begin_s=BEGIN_S,
                lasts_s=lasts_s,
                cap_bps=cap_bps,
                force=force,
                flows=flows,
            )
            for host, flows in ends.items()
        ]
        reports = in_thread(lambda: self._ask(orders))
        self._fleet.check()
        return {told.id: told for report in reports for told in report.flows}

    def _ask(self, orders: list[FlowOrder]) -> list[FlowReport]:
        enter_for_good(self.lab.mgmt_netns)
        return asyncio.run(self._answers(orders))

    async def _answers(self, orders: list[FlowOrder]) -> list[FlowReport]:
        authority, ready = Authority.load_or_new(self.lab.run_dir / "authority"), asyncio.Event()
        reports: dict[str, FlowReport] = {}
        bus = manager_bus(
            self._fleet.bus, authority, name="test", on_change=lambda is_there: is_there and ready.set()
        )
        bus.subscribe(
            up("*", "*", "audit-flows"), FlowReport, lambda report: reports.update({report.host: report})
        )
        bus.start()
        try:
            async with asyncio.timeout(ANSWERS_S):
                await ready.wait()
                while len(reports) < len(orders):
                    for order in orders:
                        bus.publish(down(bus.pod, order.host, "audit-flows"), order)
                    await asyncio.sleep(REPEAT_S)
                return list(reports.values())
        finally:
            await bus.close()


@pytest.fixture(scope="module")
def ordering() -> Iterator[Ordering]:
    name = lab_name("flw")
    lifecycle.up(LabSpec(name=name, leaves=2, spines=SPINES, hosts_per_leaf=HOSTS, seed=3))
    try:
        lab = Lab.open(name)
        with Fleet(lab, planner=PlannerSettings(enabled=True)) as fleet:
            assert wait_for(fleet.checked(lambda: knows_fabric(fleet)), 60.0)
            yield Ordering(lab, fleet)
    finally:
        lifecycle.down(name)


def knows_fabric(fleet: Fleet) -> bool:
    """Whether all links between switches are known, so that the planner can plan."""
    done = CliRunner().invoke(main, ["fabric", "--json", "--manager", f"unix://{fleet.socket}"])
    links = json.loads(done.stdout)["links"] if done.exit_code == 0 else []
    return len(links) == 2 * SPINES


def sport_over(lab: Lab, source: str, target: str, spine: str, first: int) -> int:
    """The first source port from a number on that leads over a spine."""
    ends = lab.host(source).nics[0].ipv4, lab.host(target).nics[0].ipv4
    streams = [Stream(source, *ends, sport) for sport in range(first, first + 64)]
    crossed = switches_of(lab, streams)
    return next(stream.sport for stream in streams if spine in crossed[stream])


def sent_bytes(lab: Lab, leaf: str) -> dict[str, int]:
    """What a leaf has sent to each spine."""
    with fabric.open_nodes(lab.topology, [leaf]) as nodes:
        links = {link.get_attr("IFLA_IFNAME"): link for link in nodes[leaf].ip.get_links()}
    return {spine: links[spine].get_attr("IFLA_STATS64")["tx_bytes"] for spine in lab.topology.above[leaf]}


def share(told: FlowTold, rate_bps: int) -> float:
    assert told.trouble == ""
    return 8 * told.carried_bytes / told.took_s / rate_bps


@pytest.mark.parametrize("spine", ["s1", "s2"])
def test_a_flow_fills_its_path_and_no_other(ordering: Ordering, spine: str) -> None:
    lab = ordering.lab
    sport = sport_over(lab, "h1", "h3", spine, 50_000)
    before = sent_bytes(lab, "l1")
    told = ordering.order([("h1", "h3", sport)])
    after = sent_bytes(lab, "l1")
    assert share(told[1], lab.spec.spine_rate_bps) >= LEAST
    grown = {each: after[each] - before[each] for each in after}
    assert grown[spine] >= told[1].carried_bytes
    assert all(grown[each] < OF_OTHERS * grown[spine] for each in grown if each != spine)


def test_two_flows_on_two_paths_fill_both_and_on_one_they_share_it(ordering: Ordering) -> None:
    """Though the planner would take them apart."""
    lab = ordering.lab
    apart = [
        (source, target, sport_over(lab, source, target, spine, 51_000))
        for source, target, spine in (("h1", "h3", "s1"), ("h2", "h4", "s2"))
    ]
    told = ordering.order(apart)
    assert min(share(told[number], lab.spec.spine_rate_bps) for number in (1, 2)) >= LEAST
    together = [apart[0], ("h2", "h4", sport_over(lab, "h2", "h4", "s1", 52_000))]
    before = sent_bytes(lab, "l1")
    told = ordering.order(together, lasts_s=LONGER_S)
    after = sent_bytes(lab, "l1")
    assert LEAST <= sum(share(told[number], lab.spec.spine_rate_bps) for number in (1, 2)) <= 1.0
    assert after["s2"] - before["s2"] < 0.1 * (after["s1"] - before["s1"])


def test_a_cap_holds(ordering: Ordering) -> None:
    told = ordering.order([("h1", "h3", 53_000)], cap_bps=20_000_000)
    assert 0.8 <= share(told[1], 20_000_000) <= 1.01


def test_a_nic_on_which_queue_pairs_send_is_left_alone_unless_forced(ordering: Ordering) -> None:
    lab = ordering.lab
    ends = (Endpoint(name, lab.host(name).nics[0].ipv4) for name in ("h1", "h4"))
    job = verbs_flow(1, *ends, qpn=0x11, remote_qpn=0x12, first_psn=0, rate_bps=5_000_000)
    with Generator([job], lab.popen, lab.run_dir) as generator:
        generator.start()
        time.sleep(1.0)
        told = ordering.order([("h1", "h3", 54_000), ("h2", "h4", 54_000)])
        assert told[1].trouble == "queue pairs send on nic0"
        assert told[2].trouble == ""
        forced = ordering.order([("h1", "h3", 54_000)], force=True)
        assert forced[1].trouble == ""
        generator.finish()
        generator.result(10.0)
