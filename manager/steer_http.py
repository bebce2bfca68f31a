"""`/v1/steer`: what operators want of queue pairs. Whoever may use the unix socket may change it."""

import socket as sockets
from collections.abc import Mapping

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError, CwdpError, PrivilegeError
from cwdp.shared.bus import Bus
from manager.state import FleetState
from manager.steering import Wish, read_wish, usual_address


class SteerApi:
    """Answers GET, PUT and DELETE; a change is sent to its host at once."""

    def __init__(self, state: FleetState, bus: Bus) -> None:
        self._state = state
        self._bus = bus

    def routes(self) -> list[web.RouteDef]:
        """For the application."""
        return [
            web.get("/v1/steer", self._get),
            web.put("/v1/steer", self._put),
            web.delete("/v1/steer", self._delete),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        wishes = self._state.steering.all(request.query.get("host", ""))
        return web.json_response({"steered": [msgspec.structs.asdict(wish) for wish in wishes]})

    async def _put(self, request: web.Request) -> web.Response:
        try:
            _require_unix(request)
            wish = read_wish(await request.read())
            self._require_known(wish)
            self._state.steering.set(wish)
        except CwdpError as error:
            return _refusal(error)
        self._publish()
        return web.json_response(msgspec.structs.asdict(wish))

    async def _delete(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            _require_unix(request)
            host, nic, dst, qpn = (_given(query, name) for name in ("host", "nic", "dst", "qpn"))
            if not qpn.isdecimal():
                raise ConfigError(f"qpn: {qpn!r} is no whole number", "give a queue pair number")
            found = self._state.steering.unset((host, nic, usual_address(dst), int(qpn)))
        except CwdpError as error:
            return _refusal(error)
        if not found:
            return _refusal(ConfigError(f"{dst} QPN {qpn} is not steered at {host}/{nic}"))
        self._publish()
        return web.json_response({})

    def _require_known(self, wish: Wish) -> None:
        host = self._state.members.hosts.get(wish.host)
        if host is None:
            raise ConfigError(f"the manager knows no host {wish.host!r}", "see: cwdp host")
        if wish.nic not in {nic.ifname for nic in host.hello.nics}:
            raise ConfigError(f"{wish.host} has no interface {wish.nic!r} that cwdp uses", "see: cwdp host")

    def _publish(self) -> None:
        for document in self._state.documents():
            self._bus.put(document)


def _require_unix(request: web.Request) -> None:
    """Changes come by the unix socket, which has an owner; TCP, which has none, is for reading."""
    sock = request.transport.get_extra_info("socket") if request.transport else None
    if sock is None or sock.family != sockets.AF_UNIX:
        raise PrivilegeError("changes are taken by the unix socket only", "ask on the manager's host")


def _given(query: Mapping[str, str], name: str) -> str:
    if not query.get(name):
        raise ConfigError(f"{name} is missing", "host, nic, dst and qpn are needed")
    return query[name]


def _refusal(error: CwdpError) -> web.Response:
    """400 for what was wrong in the asking, 403 for where it came from, 500 for what is wrong here."""
    status = {ConfigError: 400, PrivilegeError: 403}.get(type(error), 500)
    return web.json_response({"error": error.message, "hint": error.hint}, status=status)
