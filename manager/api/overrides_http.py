"""`/v1/steer`, `/v1/steer/tcp` and `/v1/slice`: what operators want."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError
from manager.access.callers import CALLER, Callers
from manager.access.roles import Role
from manager.api.tcp_asked import TcpAsked, withdrawn
from manager.overrides.change import OverrideChange
from manager.overrides.grantable import require_acting, require_known
from manager.overrides.slices import SliceOverride, read_slice_override
from manager.overrides.steering import SteerOverride, read_steer_override, usual_address
from manager.overrides.store import Keyed, OverrideTable
from manager.overrides.tcp import TcpOverride, TcpTable
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
        read: reads one from a request's body, and lets through what can be granted; raises ConfigError.
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
    asked = TcpAsked(state.members, state.traffic.tcp, state.planner.steered_tcp)
    kinds = (
        _Kind(
            name="steer",
            path="/v1/steer",
            listed_as="steered",
            table=state.steering,
            read=lambda body: require_steerable(state, read_steer_override(body)),
            key=_steer_key,
        ),
        _Kind(
            name="steer",
            path="/v1/steer/tcp",
            listed_as="connections",
            table=state.overrides.tcp,
            read=lambda body: asked.read(body, state.fabric.routes),
            key=lambda query: _tcp_key(state.overrides.tcp, query),
        ),
        _Kind(
            name="slice",
            path="/v1/slice",
            listed_as="interfaces",
            table=state.slicing,
            read=lambda body: _of_known_nic(state, read_slice_override(body)),
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
        listed = [msgspec.to_builtins(each) | shown_with(self._state, each) for each in overrides]
        return web.json_response({self._kind.listed_as: listed})

    async def _put(self, request: web.Request) -> web.Response:
        override = self._kind.read(await request.read())
        before = self._kind.table.set(override)
        await self._commit()
        self._note("set", override, before, request)
        return web.json_response(msgspec.to_builtins(override))

    async def _delete(self, request: web.Request) -> web.Response:
        key, unknown = self._kind.key(request.query)
        dropped = self._kind.table.unset(key)
        if dropped is None:
            raise unknown
        await self._commit()
        self._note("withdrawn", dropped, dropped, request)
        return web.json_response({})

    def _note(
        self, action: Literal["set", "withdrawn"], override: Keyed, before: Keyed | None, request: web.Request
    ) -> None:
        """Tell that somebody has changed something, once it is kept."""
        by, why = request[CALLER].name, request[CALLER].why
        host, nic, kind = override.host, override.nic, self._kind.name
        was = "nothing" if before is None else str(before)
        what = f"{override}; before: {was}" if action == "set" else f"no more {override}"
        for at_host, at_nic in _places(override):
            self._state.note(at_host, f"{kind}_{action}", f"by {by}: {what}", nic=at_nic, why=why)
        wanted, replaced = (msgspec.to_builtins(each) for each in (override, before))
        self._state.on_override(
            OverrideChange(
                action=action,
                what=kind,
                host=host,
                nic=nic,
                wanted=wanted,
                before=replaced,
                by=by,
                why=why,
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


def _tcp_key(table: TcpTable, query: Mapping[str, str]) -> tuple[Key, ConfigError]:
    (connection,) = _required(query, "connection")
    key = withdrawn(table, connection).key
    return key, ConfigError(f"no operator steers {connection}", "nothing is to be done")


def _places(override: Keyed) -> list[tuple[str, str]]:
    """The hosts and NICs that an override is about."""
    if isinstance(override, TcpOverride):
        return [(end.host, end.nic) for end in override.ends]
    return [(override.host, override.nic)]


def _of_known_nic(state: FleetState, override: SliceOverride) -> SliceOverride:
    require_known(state.members, override.host, override.nic)
    return override


def _required(query: Mapping[str, str], *names: str) -> list[str]:
    """The values of these parameters.

    Raises:
        ConfigError: one is missing.
    """
    for name in names:
        if not query.get(name):
            raise ConfigError(f"{name} is missing", f"{', '.join(names)} are needed")
    return [query[name] for name in names]


def shown_with(state: FleetState, override: Keyed) -> dict[str, str]:
    """What is listed with an override: what moves its queue pair, or the name of its connection."""
    if isinstance(override, TcpOverride):
        return {"connection": override.name}
    if not isinstance(override, SteerOverride):
        return {}
    verbs = state.traffic.verbs.of((override.host, override.nic, override.dst, override.qpn))
    return {"actuator": "tc" if verbs is None else verbs.actuator}


def require_steerable(state: FleetState, override: SteerOverride) -> SteerOverride:
    """Let through a queue pair that can be moved.

    Raises:
        ConfigError: as `require_known`; no program has told of it where only programs can move it; or nothing can.
    """
    verbs = state.traffic.verbs.of((override.host, override.nic, override.dst, override.qpn))
    if verbs is not None and verbs.actuator == "apm":
        return _require_migratable(state, override)
    if override.is_by_lid:
        raise ConfigError(
            f"{override.sport} is no source port of a path, but a LID", "give a port from 49152 to 65535"
        )
    if verbs is None or verbs.actuator == "tc":
        require_known(state.members, override.host, override.nic)
        return override
    if verbs.actuator == "create_only":
        raise ConfigError(
            f"the device of {override.nic} of {override.host} cannot move a queue pair once it is connected",
            "it can be drained for that: set drain under [verbs] in its agent's configuration; see docs/verbs.md",
        )
    require_acting(state.members, override.host)
    return override


def _require_migratable(state: FleetState, override: SteerOverride) -> SteerOverride:
    """Let through a path of InfiniBand that a connection can migrate to."""
    require_acting(state.members, override.host)
    if override.backup_sport is not None or override.flow_label:
        raise ConfigError(
            "backups and flow labels are of source ports; this queue pair is over InfiniBand",
            "leave --backup and --flow-label out: its alternate path is the manager's choice",
        )
    reason = state.migrations.why_not(override.key, override.sport)
    if reason is not None:
        raise ConfigError(
            f"{override.dst} QPN {override.qpn} of {override.host} cannot take the path to LID {override.sport}: {reason}",
            "see: cwdp path, and docs/verbs.md",
        )
    return override
