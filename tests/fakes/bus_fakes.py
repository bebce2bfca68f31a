"""A fleet's bus on loopback, with one authority for all tests of a process: its server, managers, hosts, bare clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.sealing import HostSeal, LeaderSeal
from cwdp.shared.bus.session import dial
from cwdp.shared.identity.credential import Credential
from manager.bus import connection
from manager.bus.nats_server import NatsServer
from manager.identity.authority import DEFAULT_POD, Authority
from tools.free_ports import free_port

POD = DEFAULT_POD


@cache
def authority() -> Authority:
    """The fleet's."""
    return Authority.new()


@cache
def credential_of(host: str, pod: str = POD) -> Credential:
    """A host's."""
    return authority().host_credential(host, pod)


def save_authority(state_dir: Path) -> str:
    """Give a manager, by its state directory, the fleet's authority; where that is."""
    authority().save(state_dir / "authority")
    return str(state_dir / "authority")


def leader_seal() -> LeaderSeal:
    """By which leaders sign."""
    return LeaderSeal(authority().control_key)


@asynccontextmanager
async def bus_server(path: Path, port: int | None = None) -> AsyncIterator[NatsServer]:
    """A server that keeps what it has below `path`."""
    server = NatsServer("127.0.0.1", port or free_port(), path, authority())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def manager_bus(url: str, *, name: str = "manager", **kwargs: Any) -> Bus:
    """A manager's connection."""
    return connection.manager_bus(url, authority(), name=name, **kwargs)


def host_bus(url: str, host: str, pod: str = POD, **kwargs: Any) -> Bus:
    """A host's connection."""
    credential = credential_of(host, pod)
    return Bus(url, credential, HostSeal(host, credential.control), pod=pod, name=host, **kwargs)


async def connect_as(url: str, credential: Credential, errors: list[str] | None = None) -> Client:
    """A bare client that shows a credential; what the server refuses it is added to `errors`."""

    async def on_error(error: Exception) -> None:
        if errors is not None:
            errors.append(str(error).lower())

    return await dial(url, credential, name=credential.name, on_error=on_error)


async def connect_as_manager(url: str) -> Client:
    """A bare client that may do all that managers may."""
    return await connect_as(url, authority().manager_credential("test"))
