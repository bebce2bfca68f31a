"""Two managers: whom one lets in and out, the other does too, and goes on doing so when it leads."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from bus_fakes import bus_server, save_authority
from fakes import until

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from manager.config import ManagerConfig
from manager.service import Manager
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

WAIT_S = 120.0


def _statuses(ports: list[int], token_file: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each manager takes a token."""
    monkeypatch.setenv("CWDP_TOKEN_FILE", str(token_file))
    taken = []
    for port in ports:
        try:
            ManagerClient(f"http://127.0.0.1:{port}").get("/v1/manager")
            taken.append(True)
        except ManagerError:
            taken.append(False)
    return taken


def test_what_is_revoked_at_one_counts_no_more_at_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(asyncio.wait_for(_play(tmp_path, monkeypatch), WAIT_S))


async def _play(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token_file = path / "token"

    async def taken(ports: list[int]) -> list[bool]:
        return await asyncio.to_thread(_statuses, ports, token_file, monkeypatch)

    async with bus_server(path / "nats") as server:
        authority = save_authority(path)
        config = ManagerConfig(authority=authority, nats=server.url, page="")
        managers, ports = [], [free_port(), free_port()]
        for name, port in zip("ab", ports, strict=True):
            own = msgspec.structs.replace(
                config,
                name=name,
                listen=f"127.0.0.1:{port}",
                state_dir=str(path / name),
                socket=str(path / f"{name}.sock"),
            )
            manager = Manager(own)
            managers.append((manager, asyncio.create_task(manager.run())))
            await until(lambda manager=manager: manager.lease.holder is not None)
        (first, first_task), (second, second_task) = managers
        await until(lambda: first.state.leads)
        leader = ManagerClient(f"unix://{path / 'a.sock'}")
        made = await asyncio.to_thread(leader.put, "/v1/access", {"name": "x", "role": "viewer"})
        kept = await asyncio.to_thread(leader.put, "/v1/access", {"name": "y", "role": "viewer"})
        token_file.write_text(made["token"] + "\n")
        token_file.chmod(0o600)
        while await taken(ports) != [True, True]:
            pass
        await asyncio.to_thread(leader.delete, "/v1/access", {"name": "x"})
        assert (await taken(ports))[0] is False
        while await taken(ports) != [False, False]:
            pass
        first.stop()
        await first_task
        await until(lambda: second.state.leads)
        assert await taken(ports[1:]) == [False]
        token_file.write_text(kept["token"])
        assert await taken(ports[1:]) == [True]
        second.stop()
        await second_task
