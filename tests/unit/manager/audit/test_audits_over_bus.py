"""Audits of a manager over its own bus, with hosts that exist in facts only; as people ask for them."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD
from click.testing import Result
from fakes import until
from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts
from cwdp.shared.bus.subjects import up
from cwdp.shared.ib.reports import subnet_pieces
from manager.audit.network.subnets import CHECKS
from manager.audit.service import running as rules
from manager.audit.service.throughput import Throughput
from manager.config import ManagerConfig
from manager.faults.finding import Finding, Subject
from manager.history.queries import CHANGES
from manager.ib import subnets as known_subnets
from manager.service import Manager
from tests.unit.manager.audit.answering import AnsweringHost, ask
from tests.unit.manager.ib.ib_worlds import clos, port
from tests.unit.manager.one_manager import config_of, running
from tools.free_ports import free_port
from tools.sim.audit.fleet import fleet as facts_of_fleet

pytestmark = pytest.mark.needs("nats-server")

HOSTS = 8


@contextlib.asynccontextmanager
async def _fleet(
    config: ManagerConfig, told: Sequence[HostFacts]
) -> AsyncIterator[tuple[Manager, list[AnsweringHost]]]:
    async with running(config) as manager:
        hosts = [AnsweringHost(facts, f"nats://{config.bus_listen}") for facts in told]
        for host in hosts:
            host.fleet = {one.name: one for one in hosts}
            host.start()
        try:
            await until(lambda: len(manager.state.members.up()) == len(hosts))
            await until(lambda: manager.lease.leads and manager.state.leads)
            yield manager, hosts
        finally:
            for host in hosts:
                await host.stop()


def _config(tmp_path: Path) -> ManagerConfig:
    (tmp_path / "checks").mkdir()
    return _with_checks(config_of(tmp_path, free_port()), tmp_path)


def _with_checks(config: ManagerConfig, tmp_path: Path) -> ManagerConfig:
    """With a folder of checks."""
    return replace(config, checks=str(tmp_path / "checks"))


async def _cwdp(config: ManagerConfig, *arguments: str) -> Result:
    return await ask(config.socket, *arguments)


async def _passes(config: ManagerConfig, *arguments: str) -> None:
    done = await _cwdp(config, *arguments)
    assert done.exit_code == 0, done.output


@asynchronous
async def test_a_uniform_fleet_passes(tmp_path: Path) -> None:
    config = _config(tmp_path)
    told = facts_of_fleet(HOSTS, 1, ["h100"])
    async with _fleet(config, told) as (manager, _):
        done = await _cwdp(config, "run", "--why", "before the great run")
        assert (done.exit_code, done.stdout.count("\n")) == (0, 2), done.output
        (started,) = [event for event in manager.state.events if event.kind == "audit_started"]
        assert started.detail.endswith(f": audit 1 (facts) of {HOSTS} hosts")
        assert (started.detail[:3], started.why, started.kind in CHANGES) == (
            "by ",
            "before the great run",
            True,
        )
        assert f"{HOSTS} hosts" in done.stdout
        answer = json.loads((await _cwdp(config, "show", "--json")).stdout)
        assert (answer["number"], answer["audit"]["results"], len(answer["hosts"])) == (1, [], HOSTS)
        assert [event.kind for event in manager.state.events].count("audit_over") == 1
        assert manager.audits.counters["ok"] == HOSTS


@asynchronous
async def test_a_fault_is_named_and_so_is_who_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "READING_S", 1.0)
    config = _config(tmp_path)
    told = facts_of_fleet(HOSTS, 2, ["h100"])
    bad, silent = told[2].host, told[5].host
    nic = next(one for one in told[2].subjects if one.kind == "nic" and one.role == "back")
    nic.facts["pcie_width"] = 8
    async with _fleet(config, told) as (_, hosts):
        hosts[5].facts = None
        done = await _cwdp(config, "run")
        assert done.exit_code == 1
        assert f"{bad}: {nic.name}" in done.stdout
        assert "did not answer" in done.stdout
        verdict = await _cwdp(config, "verdict", silent)
        assert (verdict.exit_code, "did not answer" in verdict.stdout) == (3, True)
        began_s = time.monotonic()
        verdict = await _cwdp(config, "verdict", bad)
        assert time.monotonic() - began_s < 1.0
        assert verdict.exit_code == 1
        assert (await _cwdp(config, "verdict", told[0].host)).exit_code == 0
        assert (await _cwdp(config, "verdict", "nobody")).exit_code == 3
        line = await _cwdp(config, "verdict", bad, "--nagios")
        assert (line.exit_code, line.stdout.startswith("AUDIT CRITICAL - "), line.stdout.count("\n")) == (
            2,
            True,
            1,
        )

        nic.facts["pcie_width"] = 16
        hosts[5].facts = told[5]
        await _passes(config, "run")
        listed = json.loads((await _cwdp(config, "list", "--json")).stdout)["audits"]
        assert [row["number"] for row in listed] == [2, 1]
        diff = await _cwdp(config, "diff")
        assert diff.exit_code == 0
        assert f"{bad} {nic.name} nic.pcie_width: 8 -> 16" in diff.stdout
        assert "gone" in diff.stdout
        again = await _cwdp(config, "show", "--number", "1")
        assert (again.exit_code, f"{bad}: {nic.name}" in again.stdout) == (1, True)


@asynchronous
async def test_old_facts_are_judged_by_the_checks_of_now(tmp_path: Path) -> None:
    config = _config(tmp_path)
    told = facts_of_fleet(HOSTS, 3, ["h100"])
    async with _fleet(config, told):
        await _passes(config, "run")
        baseline = await _cwdp(config, "baseline", "--from", told[0].host)
        assert baseline.exit_code == 0
        (tmp_path / "checks" / "baseline.toml").write_text(baseline.stdout)
        assert (await _cwdp(config, "show", "--anew")).exit_code == 0
        (tmp_path / "checks" / "own.toml").write_text(
            '[[check]]\nname = "kernel-ours"\nfact = "host.kernel_release"\nversion_min = "99.1"\n'
            'severity = "fail"\nwhy = "a test"\nmend = "apt upgrade"\nreference = "none"\n'
        )
        done = await _cwdp(config, "show", "--anew")
        assert (done.exit_code, "kernel-ours" in done.stdout, "apt upgrade" in done.stdout) == (1, True, True)
        assert (await _cwdp(config, "show")).exit_code == 0


@asynchronous
async def test_what_cannot_be_done_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "READING_S", 3.0)
    config = _config(tmp_path)
    told = facts_of_fleet(2, 4, ["h100"])
    async with _fleet(config, told) as (_, hosts):
        for arguments, said, status in (
            (("show",), "no audit has been made here", 3),
            (("verdict", "h1"), "no audit has been made here", 3),
            (("diff",), "no two audits to compare", 1),
            (("baseline", "--from", "h1"), "no audit has been made here", 1),
            (("show", "--number", "7"), "no audit 7 here", 3),
            (("run", "nobody*"), "no such host", 3),
            (("verdict", "h1", "--nagios"), "AUDIT UNKNOWN - the manager refused: no audit", 3),
        ):
            done = await _cwdp(config, *arguments)
            assert (done.exit_code, said in done.output) == (status, True), done.output
        (tmp_path / "checks" / "own.toml").write_text('[[check]]\nname = "x"\nfact = "nic.mtu"\n')
        done = await _cwdp(config, "run")
        assert done.exit_code == 2
        assert "own.toml:3" in done.output
        assert "nic.mtu_bytes" in done.output
        assert hosts[0].told == 0
        (tmp_path / "checks" / "own.toml").unlink()
        hosts[0].facts = None
        first = asyncio.create_task(_cwdp(config, "run"))
        await until(lambda: hosts[1].told == 1)
        second = await _cwdp(config, "run")
        assert (second.exit_code, "under way: 1 of 2 hosts" in second.output) == (3, True)
        assert (await first).exit_code == 3


@asynchronous
async def test_an_audit_of_some_hosts_asks_no_others(tmp_path: Path) -> None:
    config = _config(tmp_path)
    told = facts_of_fleet(3, 5, ["h100"])
    async with _fleet(config, told) as (_, hosts):
        done = await _cwdp(config, "run", told[0].host, f"{told[1].host}*")
        assert done.exit_code == 0
        assert [host.told for host in hosts] == [1, 1, 0]


@asynchronous
async def test_an_audit_of_the_network_asks_twice_and_tells_of_the_mesh_too(tmp_path: Path) -> None:
    """No path is known here, so there is nothing to walk over."""
    config = _config(tmp_path)
    told = facts_of_fleet(2, 5, ["h100"])
    async with _fleet(config, told) as (_, hosts):
        done = await _cwdp(config, "run", "--level", "network", "--json")
        answer = json.loads(done.stdout)
        assert answer["level"] == "network"
        assert answer["audit"]["passed"]["probed"] == 2
        assert [host.told for host in hosts] == [2, 2]
        assert [host.reaches for host in hosts] == [[False, True]] * 2
        again = json.loads((await _cwdp(config, "show", "--anew", "--json")).stdout)
        assert again["audit"] == answer["audit"]


@asynchronous
async def test_what_an_audits_own_flows_bring_about_is_no_fault_of_the_fabric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    async with _fleet(config, facts_of_fleet(2, 6, ["h100"])) as (manager, _):

        def found(name: str) -> None:
            slow = Subject("link", name)
            finding = Finding(
                number=0, kind="slow", subject=slow, confidence=1.0, evidence=["a queue"], start_s=0.0
            )
            manager.state.faults.open(finding)

        async def go_on(_: Throughput) -> bool:
            found("l9 - s9")
            return True

        monkeypatch.setattr(Throughput, "go_on", go_on)
        found("l1 - s1")
        done = await _cwdp(config, "run", "--level", "throughput", "--json")
        results = json.loads(done.stdout)["audit"]["results"]
        assert [one["subject"] for one in results if one["check"] == "faults"] == ["l1 - s1"]
        assert len(manager.state.faults.current) == 2


WIDTH_WAIVED = """[[waiver]]
check = "ib-width"
host = "h5"
until = 2999-12-31
reason = "cable is ordered"
"""


@asynchronous
async def test_an_audit_of_the_network_judges_infiniband_subnets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    told = facts_of_fleet(2, 5, ["h100"])
    subnet = clos()
    subnet.ports["width"][port(subnet, "h5 mlx5_0", 1)] = 1
    async with _fleet(config, told) as (manager, hosts):
        await _passes(config, "run", "--level", "facts")
        for piece in subnet_pieces(hosts[0].name, 1, subnet):
            hosts[0].bus.publish(up(POD, hosts[0].name, "ib-subnet"), replace(piece, boot_id="boot"))
        await until(lambda: len(manager.state.subnets.now) == 1)
        done = await _cwdp(config, "run", "--level", "network")
        assert (done.exit_code, "h5: mlx5_0" in done.stdout, "1 of 4 lanes" in done.stdout) == (1, True, True)
        (tmp_path / "checks" / "own.toml").write_text(WIDTH_WAIVED)
        anew = json.loads((await _cwdp(config, "show", "--anew", "--json")).stdout)["audit"]
        width = next(one for one in anew["results"] if one["check"] == "ib-width")
        assert (width["host"], width["verdict"], width["reason"]) == ("h5", "waived", "cable is ordered")
        assert (anew["passed"]["ib-speed"], anew["passed"]["ib-width"]) == (32, 31)
        monkeypatch.setattr(known_subnets, "SILENT_S", 0.0)
        report = tmp_path / "report.html"
        done = await _cwdp(config, "run", "--level", "network", "--json", "--html", str(report))
        of_subnet = [one for one in json.loads(done.stdout)["audit"]["results"] if one["check"] in CHECKS]
        assert {(one["check"], one["verdict"]) for one in of_subnet} == {(name, "unknown") for name in CHECKS}
        assert f"InfiniBand subnet read by {hosts[0].name}" in report.read_text()
        assert "ib-width" not in json.loads(done.stdout)["audit"]["passed"]


@asynchronous
async def test_audits_outlive_their_manager(tmp_path: Path) -> None:
    config = _config(tmp_path)
    told = facts_of_fleet(2, 6, ["h100"])
    async with _fleet(config, told):
        await _passes(config, "run")
    async with running(config) as manager:
        await until(lambda: manager.audits.latest is not None)
        assert (await _cwdp(config, "verdict", told[0].host)).exit_code == 0
