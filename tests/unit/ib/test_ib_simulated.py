"""`cwdp ib` over subnets that ibsim and opensm make."""

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import need
import pytest

from tools.ib.simulated import LIBRARY, Subnet
from tools.ib.topology import Clos, port_name
from tools.waiting import wait_for

CWDP = (sys.executable, "-m", "cwdp")
HOSTS = 16
PAIRS = 30


@pytest.fixture(scope="module")
def subnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subnet]:
    for what in ("ibsim", "opensm", "ibtracert", LIBRARY):
        need.installed(what)
    with Subnet(Clos(), tmp_path_factory.mktemp("ib")) as running:
        yield running


def _told(subnet: Subnet, *arguments: str, host: str = "h1") -> Any:
    done = subnet.run(host, [*CWDP, "ib", *arguments, "--json"])
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)


def test_the_fabric_is_what_the_subnet_is(subnet: Subnet) -> None:
    told = _told(subnet, "fabric")
    names = {node["name"]: node for node in told["nodes"]}
    assert names.keys() == {
        f"{kind}{i}" for kind, most in (("h", 16), ("l", 4), ("s", 4)) for i in range(1, most + 1)
    }
    assert len(told["links"]) == 32
    assert (names["h3"]["lmc"], names["l1"]["active_ports"], told["silent"]) == (2, 8, [])
    assert {"a": "l1:1", "b": "h1/1"}.items() <= next(
        {"a": max(one["a"], one["b"]), "b": min(one["a"], one["b"])}.items()
        for one in told["links"]
        if "h1/1" in one.values()
    )


def test_it_looks_the_same_from_everywhere(subnet: Subnet) -> None:
    first, other = (_told(subnet, "fabric", host=host) for host in ("h1", "h14"))
    assert (first["nodes"], first["links"]) == (other["nodes"], other["links"])


def test_four_lids_leave_by_four_spines(subnet: Subnet) -> None:
    told = _told(subnet, "path", "h2", "h9")
    spines = {one["ports"][2].partition(":")[0] for one in told["ways"]}
    assert (told["lmc"], spines) == (2, {"s1", "s2", "s3", "s4"})


def test_ways_are_those_of_ibtracert(subnet: Subnet) -> None:
    draw, lids = random.Random(4), {}
    for node in _told(subnet, "fabric")["nodes"]:
        lids[node["name"]] = node["lid"]
    for _ in range(PAIRS):
        src, dst = draw.sample(range(1, HOSTS + 1), 2)
        for one in _told(subnet, "path", f"h{src}", f"h{dst}")["ways"][:: draw.choice((1, 3))]:
            traced = subnet.run("h1", ["ibtracert", str(lids[f"h{src}"]), str(one["dlid"])]).stdout
            assert one["ports"] == _ports(traced), traced


def _ports(traced: str) -> list[str]:
    """The ports that packets leave by, as ibtracert tells."""
    nodes = re.findall(r'lid \d+-\d+ "(\w+)"', traced)
    by = re.findall(r"^\[(\d+)\] ->", traced, flags=re.MULTILINE)
    return [port_name(node, int(port)) for node, port in zip(nodes, by, strict=False)]


def test_a_link_that_is_gone_is_seen(subnet: Subnet) -> None:
    subnet.console('unlink "l1"[5]')
    try:
        wait_for(lambda: len(_told(subnet, "fabric")["links"]) == 31, 20.0)
        ways = [one["ports"] for one in _told(subnet, "path", "h2", "h9")["ways"]]
        assert sum(one is None for one in ways) == 1
    finally:
        subnet.console('link "l1"[5] "s1"[1]')
        subnet.sweep()


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (("path", "h2", "nobody"), "the fabric has no host nobody", 2),
        (("path", "h2/7", "h3"), "0 ports of hosts are named h2/7", 2),
        (("fabric", "--dev", "mlx5_7"), "the device mlx5_7 cannot be opened", 1),
    ],
)
def test_what_cannot_be_told_is_said(
    subnet: Subnet, arguments: tuple[str, ...], said: str, status: int
) -> None:
    done = subnet.run("h1", [*CWDP, "ib", *arguments])
    assert (done.returncode, said in done.stdout, "Traceback" in done.stdout) == (status, True, False)


def test_nothing_grows_on_a_subnet_that_is_well(subnet: Subnet) -> None:
    ports = _told(subnet, "counters", "--seconds", "0.2", "--all")["ports"]
    assert len(ports) == 16 + 8 * 4 + 4 * 4
    assert not any(one["per_s"]["symbol_errors"] or one["stuck"] for one in ports)
    assert _told(subnet, "counters", "--seconds", "0.2")["ports"] == []


def test_errors_of_a_port_are_told_and_of_no_other(subnet: Subnet) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_told, subnet, "counters", "--seconds", "3")
        time.sleep(1.5)
        subnet.console('PerformanceSet "l1"[5] PortCounters.SymbolErrorCounter=30')
        (port,) = running.result()["ports"]
    assert (port["port"], port["stuck"]) == ("l1:5", [])
    assert port["per_s"]["symbol_errors"] == pytest.approx(10.0, rel=0.1)


def test_tables_for_people(subnet: Subnet, tmp_path: Path) -> None:
    del tmp_path
    shown = subnet.run("h1", [*CWDP, "ib", "fabric"]).stdout
    assert "16 hosts, 8 switches, 32 links" in shown
    assert "h1 h2 h3 h4" in shown
    assert "h2/1 > l1:" in subnet.run("h1", [*CWDP, "ib", "path", "h2", "h9"]).stdout


def test_a_whole_subnet_has_nothing_amiss(subnet: Subnet) -> None:
    assert _told(subnet, "audit") == {"nodes": 24, "links": 32, "findings": []}


def test_an_audit_of_no_device_is_incomplete(subnet: Subnet) -> None:
    done = subnet.run("h1", [*CWDP, "ib", "audit", "--dev", "none"])
    assert done.returncode == 3, done.stdout


@pytest.mark.usefixtures("subnet")
@pytest.mark.parametrize(
    ("clos", "lmc", "engine", "check"),
    [
        (Clos(4, 4, 4), 0, "ftree", "ib-lmc"),
        (Clos(3, 2, 4, parallel=2), 0, "ftree", "ib-lmc"),
        (Clos(3, 3, 6), 0, "updn", "ib-lmc"),
        (Clos(3, 2, 3, parallel=2), 1, "minhop", "ib-balance"),
    ],
    ids=str,
)
def test_an_audit_tells_how_even_the_routes_of_an_engine_are(
    clos: Clos, lmc: int, engine: str, check: str, tmp_path: Path
) -> None:
    with Subnet(clos, tmp_path, lmc=lmc, engine=engine) as other:
        found = _told(other, "audit")["findings"]
    assert {one["check"] for one in found} == {check}, found
