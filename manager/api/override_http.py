"""What `/v1/steer` and `/v1/slice` have in common: who may change, of whom, and how a refusal is told."""

import socket as sockets
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from cwdp.errors import BusError, ConfigError, CwdpError, PrivilegeError
from manager.state import FleetState

Handler = Callable[[web.Request], Awaitable[web.Response]]
Commit = Callable[[], Awaitable[None]]
"""Has a change kept on the bus and told to hosts, or undone: then it raises `BusError`."""


def changes(handler: Handler) -> Handler:
    """A handler that changes something: by the unix socket only, its refusals told as JSON."""

    async def guarded(request: web.Request) -> web.Response:
        try:
            _require_unix(request)
            return await handler(request)
        except CwdpError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(ConfigError("that is more than a host can be told", "ask for less"))

    return guarded


def required(query: Mapping[str, str], *names: str) -> list[str]:
    """The values of these parameters.

    Raises:
        ConfigError: one is missing.
    """
    for name in names:
        if not query.get(name):
            raise ConfigError(f"{name} is missing", f"{', '.join(names)} are needed")
    return [query[name] for name in names]


def require_known(state: FleetState, host: str, ifname: str) -> None:
    """Let through a NIC that an agent has told of.

    Raises:
        ConfigError: there is none of that name, it has no dataplane, or its host grants no overrides.
    """
    known = state.members.hosts.get(host)
    if known is None:
        raise ConfigError(f"the manager knows no host {host!r}", "see: cwdp host")
    nic = next((nic for nic in known.hello.nics if nic.ifname == ifname), None)
    if nic is None:
        raise ConfigError(f"{host} has no interface {ifname!r} that cwdp uses", "see: cwdp host")
    if nic.transport == "ud":
        raise ConfigError(
            f"{ifname} of {host} probes by UD queue pairs: it has no dataplane that could do this",
            "where the hardware sends RDMA, only its programs can steer it; see docs/rdma.md",
        )
    if known.hello.observe_only:
        raise ConfigError(f"{host} only observes", "take observe_only out of its agent's configuration")


def _require_unix(request: web.Request) -> None:
    """Changes come by the unix socket, which has an owner; TCP, which has none, is for reading."""
    sock = request.transport.get_extra_info("socket") if request.transport else None
    if sock is None or sock.family != sockets.AF_UNIX:
        raise PrivilegeError("changes are taken by the unix socket only", "ask on the manager's host")


def _refusal(error: CwdpError) -> web.Response:
    """400 for what was wrong in the asking, 403 for where it came from, 503 or 500 for what is wrong here."""
    status = {ConfigError: 400, PrivilegeError: 403, BusError: 503}.get(type(error), 500)
    return web.json_response({"error": error.message, "hint": error.hint}, status=status)
