"""`/v1/steer` and `/v1/slice`: what operators want."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError
from manager.access.callers import CALLER, Callers
from manager.access.roles import Role
from manager.overrides.change import OverrideChange
from manager.overrides.slices import read_slice_override
from manager.overrides.steering import SteerOverride, read_steer_override, usual_address
from manager.overrides.store import Keyed, OverrideTable
from manager.state import FleetState

QPN_DIGITS = 8

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


def routes(state: FleetState, commit: Commit, callers: Callers) -> list[web.RouteDef]:
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
    return [route for kind in kinds for route in _Resource(kind, state, commit).routes(callers)]


class _Resource:
    """Answers GET, PUT and DELETE of one kind of override."""

    def __init__(self, kind: _Kind, state: FleetState, commit: Commit) -> None:
        self._kind, self._state, self._commit = kind, state, commit

    def routes(self, callers: Callers) -> list[web.RouteDef]:
        """For the application."""
        path = self._kind.path
        return [
            web.get(path, self._get),
            web.put(path, callers.changes(Role.OPERATOR, self._put)),
            web.delete(path, callers.changes(Role.OPERATOR, self._delete)),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        overrides = self._kind.table.all(request.query.get("host", ""))
        listed = [msgspec.to_builtins(each) | actuator(self._state, each) for each in overrides]
        return web.json_response({self._kind.listed_as: listed})

    async def _put(self, request: web.Request) -> web.Response:
        override = self._kind.read(await request.read())
        if isinstance(override, SteerOverride):
            require_steerable(self._state, override)
        else:
            require_known(self._state, override.host, override.nic)
        before = self._kind.table.set(override)
        await self._commit()
        self._note("set", override, before, request[CALLER].name)
        return web.json_response(msgspec.to_builtins(override))

    async def _delete(self, request: web.Request) -> web.Response:
        key, unknown = self._kind.key(request.query)
        dropped = self._kind.table.unset(key)
        if dropped is None:
            raise unknown
        await self._commit()
        self._note("withdrawn", dropped, dropped, request[CALLER].name)
        return web.json_response({})

    def _note(
        self, action: Literal["set", "withdrawn"], override: Keyed, before: Keyed | None, by: str
    ) -> None:
        """Tell that somebody has changed something, once it is kept."""
        host, nic, kind = override.host, override.nic, self._kind.name
        was = "nothing" if before is None else str(before)
        what = f"{override}; before: {was}" if action == "set" else f"no more {override}"
        self._state.note(host, f"{kind}_{action}", f"by {by}: {what}", nic=nic)
        wanted, replaced = (msgspec.to_builtins(each) for each in (override, before))
        self._state.on_override(
            OverrideChange(
                action=action, what=kind, host=host, nic=nic, wanted=wanted, before=replaced, by=by
            )
        )


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


def _required(query: Mapping[str, str], *names: str) -> list[str]:
    """The values of these parameters.

    Raises:
        ConfigError: one is missing.
    """
    for name in names:
        if not query.get(name):
            raise ConfigError(f"{name} is missing", f"{', '.join(names)} are needed")
    return [query[name] for name in names]


def actuator(state: FleetState, override: Keyed) -> dict[str, str]:
    """What moves the queue pair of an override, to be listed with it; nothing of other kinds."""
    if not isinstance(override, SteerOverride):
        return {}
    verbs = state.traffic.verbs.of((override.host, override.nic, override.dst, override.qpn))
    return {"actuator": "tc" if verbs is None else verbs.actuator}


def require_steerable(state: FleetState, override: SteerOverride) -> None:
    """Let through a queue pair that can be moved.

    Raises:
        ConfigError: as `require_known`; no program has told of it where only programs can move it; or nothing can.
    """
    verbs = state.traffic.verbs.of((override.host, override.nic, override.dst, override.qpn))
    if verbs is None or verbs.actuator == "tc":
        require_known(state, override.host, override.nic)
        return
    if verbs.actuator == "create_only":
        raise ConfigError(
            f"the device of {override.nic} of {override.host} cannot move a queue pair once it is connected",
            "it can be drained for that: set drain under [verbs] in its agent's configuration; see docs/verbs.md",
        )
    _require_acting(state, override.host)


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
            "where the hardware sends RDMA, only its programs can steer it, with the verbs shim; see docs/verbs.md",
        )
    _require_acting(state, host)


def _require_acting(state: FleetState, host: str) -> None:
    if state.members.hosts[host].hello.observe_only:
        raise ConfigError(f"{host} only observes", "take observe_only out of its agent's configuration")
