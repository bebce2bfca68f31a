"""`/v1/steer` and `/v1/slice`: what operators want. Whoever may use the unix socket may change it."""

import socket as sockets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from cwdp.errors import BusError, ConfigError, CwdpError, PrivilegeError
from manager.overrides.slices import read_slice_override
from manager.overrides.steering import read_steer_override, usual_address
from manager.overrides.store import Keyed, OverrideTable
from manager.state import FleetState

QPN_DIGITS = 8

Handler = Callable[[web.Request], Awaitable[web.Response]]
Key = tuple[Any, ...]
Commit = Callable[[], Awaitable[None]]
"""Has a change kept on the bus and told to hosts, or undone: then it raises `BusError`."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One kind of override.

    Attributes:
        name: of the kind.
        path: where it is asked for.
        listed_as: the key of the list in the answer.
        table: all overrides of the kind.
        read: reads one from a request's body.
        key: reads the key of one from a query, and what to say where there is none of that key.
    """

    name: Literal["steer", "slice"]
    path: str
    listed_as: str
    table: OverrideTable[Any]
    read: Callable[[bytes], Keyed]
    key: Callable[[Mapping[str, str]], tuple[Key, ConfigError]]


def routes(state: FleetState, commit: Commit) -> list[web.RouteDef]:
    """For the application. A change is sent to its host at once."""
    kinds = (
        _Kind(
            name="steer",
            path="/v1/steer",
            listed_as="steered",
            table=state.steering,
            read=read_steer_override,
            key=_steer_key,
        ),
        _Kind(
            name="slice",
            path="/v1/slice",
            listed_as="interfaces",
            table=state.slicing,
            read=read_slice_override,
            key=_slice_key,
        ),
    )
    return [route for kind in kinds for route in _Resource(kind, state, commit).routes()]


class _Resource:
    """Answers GET, PUT and DELETE of one kind of override."""

    def __init__(self, kind: _Kind, state: FleetState, commit: Commit) -> None:
        self._kind, self._state, self._commit = kind, state, commit

    def routes(self) -> list[web.RouteDef]:
        """For the application."""
        path = self._kind.path
        return [
            web.get(path, self._get),
            web.put(path, _changes(self._put)),
            web.delete(path, _changes(self._delete)),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        overrides = self._kind.table.all(request.query.get("host", ""))
        return web.json_response({self._kind.listed_as: msgspec.to_builtins(overrides)})

    async def _put(self, request: web.Request) -> web.Response:
        override = self._kind.read(await request.read())
        require_known(self._state, override.host, override.nic)
        self._kind.table.set(override)
        await self._commit()
        self._note("set", override)
        return web.json_response(msgspec.to_builtins(override))

    async def _delete(self, request: web.Request) -> web.Response:
        key, unknown = self._kind.key(request.query)
        dropped = self._kind.table.unset(key)
        if dropped is None:
            raise unknown
        await self._commit()
        self._note("withdrawn", dropped)
        return web.json_response({})

    def _note(self, action: Literal["set", "withdrawn"], override: Keyed) -> None:
        """Tell that an operator has changed something, once it is kept."""
        host, nic = override.host, override.nic
        self._state.note(host, f"{self._kind.name}_{action}", f"by an operator: {override}", nic=nic)
        self._state.on_override(action, self._kind.name, host, nic, msgspec.to_builtins(override))


def _steer_key(query: Mapping[str, str]) -> tuple[Key, ConfigError]:
    host, nic, dst, qpn = _required(query, "host", "nic", "dst", "qpn")
    if not qpn.isdecimal() or len(qpn) > QPN_DIGITS:
        raise ConfigError(f"qpn: {qpn!r} is no whole number", "give a queue pair number")
    unknown = ConfigError(f"{dst} QPN {qpn} is not steered at {host}/{nic}")
    return (host, nic, usual_address(dst), int(qpn)), unknown


def _slice_key(query: Mapping[str, str]) -> tuple[Key, ConfigError]:
    host, nic = _required(query, "host", "nic")
    unknown = ConfigError(f"no slices are wanted at {host}/{nic}", "what was applied there by hand stays")
    return (host, nic), unknown


def _changes(handler: Handler) -> Handler:
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


def _required(query: Mapping[str, str], *names: str) -> list[str]:
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
