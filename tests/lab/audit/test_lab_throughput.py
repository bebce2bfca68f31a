"""An audit's throughput in a lab: all links are filled, a link and a path at half their rate are named."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import lab_name

from cwdp.cli import main
from manager.config import ProbeSettings
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]

SIDE, HOSTS = 4, 2
LINKS = 2 * (SIDE * SIDE + SIDE * HOSTS)
MOST_ROUNDS = 12
RATE_BPS = 100_000_000
SLOW_LINK, SLOW_DIRECTION = "l2-s3", "l2>s3"
SLOW_WAY = ("l1", "s2", "l4")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    name = lab_name("fill")
    lifecycle.up(LabSpec(name=name, leaves=SIDE, spines=SIDE, hosts_per_leaf=HOSTS, rate_bps=RATE_BPS))
    try:
        with Fleet(Lab.open(name), probes=ProbeSettings(pairs_per_s=200.0, paths=8)) as running:
            assert wait_for(lambda: _known_links(running) == SIDE * SIDE, 60.0)
            yield running
    finally:
        lifecycle.down(name)


def _cwdp(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    fleet.check()
    done = CliRunner().invoke(main, [*arguments, "--json", "--manager", f"unix://{fleet.socket}"])
    assert done.exit_code in (0, 1, 3), done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _known_links(fleet: Fleet) -> int:
    done = CliRunner().invoke(main, ["fabric", "--json", "--manager", f"unix://{fleet.socket}"])
    known = json.loads(done.stdout) if done.exit_code == 0 else {"nic_count": 0, "links": []}
    return len(known["links"]) if known["nic_count"] == SIDE * HOSTS else 0


def _slow(fleet: Fleet, answer: dict[str, Any]) -> set[tuple[str, str]]:
    """What carries less than it should, by the lab's names of switches."""
    topology = fleet.lab.topology
    names = {
        str(address): switch for switch in topology.switches for address in topology.router_addresses(switch)
    }
    return {
        (row["host"], " ".join(names.get(word, word) for word in row["subject"].split(" ")))
        for row in answer["audit"]["results"]
        if row["check"] == "throughput" and row["verdict"] == "fail"
    }


def test_each_link_is_filled_in_few_rounds(fleet: Fleet) -> None:
    answer = _cwdp(fleet, "audit", "run", "--level", "throughput")
    assert _slow(fleet, answer) == set()
    carried = answer["carried"]
    assert carried["filled"] == carried["links"] == LINKS
    assert 0 < carried["filled_after"] <= MOST_ROUNDS
    assert 0.9 * RATE_BPS < carried["flow_bps"] < RATE_BPS
    assert answer["audit"]["passed"]["throughput"] == LINKS


def test_a_link_and_a_path_at_half_their_rate_are_named(fleet: Fleet) -> None:
    faults.slow(fleet.lab.name, SLOW_LINK, RATE_BPS // 2, SLOW_DIRECTION)
    _slow_way(fleet.lab)
    answer = _cwdp(fleet, "audit", "run", "--level", "throughput")
    slow = _slow(fleet, answer)
    assert ("fabric", SLOW_DIRECTION.replace(">", " > ")) in slow
    others = slow - {("fabric", SLOW_DIRECTION.replace(">", " > "))}
    assert len(others) == 1
    assert " > ".join(SLOW_WAY) in next(iter(others))[1]


def _slow_way(lab: Lab) -> None:
    """Hold what comes from one leaf and goes to another over a spine to half the rate, where it leaves the spine."""
    near, spine, far = SLOW_WAY
    sources = [nic.ipv4 for host in lab.hosts for nic in host.nics if nic.leaf == near]
    classes = [(1, RATE_BPS), (2, RATE_BPS // 2)]
    port = ["dev", lab.topology.link(f"{far}-{spine}").port_of(spine).name]
    lines = [["qdisc", "replace", *port, "root", "handle", "2:", "htb", "default", "1", "r2q", "1000"]]
    for number, rate_bps in classes:
        rate = ["rate", f"{rate_bps}bit", "burst", "9100", "cburst", "9100"]
        lines.append(["class", "add", *port, "parent", "2:", "classid", f"2:{number}", "htb", *rate])
        lines.append(["qdisc", "add", *port, "parent", f"2:{number}", "bfifo", "limit", "262144"])
    for source in sources:
        match = ["u32", "match", "ip", "src", f"{source}/32", "flowid", "2:2"]
        lines.append(["filter", "add", *port, "parent", "2:", "protocol", "ip", *match])
    for line in lines:
        with lab.popen(spine, ["tc", *line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate()
            assert process.returncode == 0, said
