"""A manager that takes over answers with the audits of the one before, and numbers its own after them."""

from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, save_authority
from fakes import until

from manager.config import ManagerConfig
from tests.unit.manager.audit.answering import AnsweringHost, ask, told
from tests.unit.manager.one_manager import running
from tools.sim.audit.fleet import fleet

pytestmark = pytest.mark.needs("nats-server")

HOSTS = 4


def _config(folder: Path, name: str, url: str) -> ManagerConfig:
    return ManagerConfig(
        name=name,
        authority=save_authority(folder),
        nats=url,
        state_dir=str(folder / name),
        socket=str(folder / f"{name}.sock"),
        checks=str(folder / "checks"),
        page="",
    )


@asynchronous
async def test_audits_outlive_a_leader(tmp_path: Path) -> None:
    async with bus_server(tmp_path / "nats") as server:
        facts = fleet(HOSTS, 7, ["h100"])
        hosts = [AnsweringHost(each, server.url) for each in facts]
        for host in hosts:
            host.fleet = {one.name: one for one in hosts}
            host.start()
        first, second = (_config(tmp_path, name, server.url) for name in ("a", "b"))
        bad = facts[2].host
        nic = next(one for one in facts[2].subjects if one.kind == "nic" and one.role == "back")
        try:
            async with running(first) as one:
                await until(lambda: one.state.leads and len(one.state.members.up()) == HOSTS)
                assert (await ask(first.socket, "run")).exit_code == 0
                nic.facts["pcie_width"] = 8
                assert (await ask(first.socket, "run")).exit_code == 1
                before = await _all(first, bad)
                said = [event.detail for event in one.state.events if event.kind == "audit_over"]
                assert ["the bus does not have it" in each for each in said] == [False, False]
                assert (said[1].startswith("audit 2 (facts) by "), f" on {bad}" in said[1]) == (True, True)
            async with running(second) as other:
                await until(lambda: other.state.leads and len(other.state.members.up()) == HOSTS)
                await other.audits.shared.known()
                await until(lambda: other.audits.latest is not None)
                assert await _all(second, bad) == before
                assert (await ask(second.socket, "baseline", "--from", bad)).exit_code == 0
                nic.facts["pcie_width"] = 16
                assert (await ask(second.socket, "run")).exit_code == 0
                assert [row["number"] for row in (await told(second.socket, "list"))["audits"]] == [3, 2, 1]
        finally:
            for host in hosts:
                await host.stop()


async def _all(config: ManagerConfig, host: str) -> list[object]:
    """What a manager answers to all that can be asked of its audits."""
    asked = ("list",), ("show",), ("show", "--number", "1"), ("show", "--anew"), ("diff",), ("verdict", host)
    return [await told(config.socket, *each) for each in asked]
