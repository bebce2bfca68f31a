"""`/v1/steer`: what operators want of queue pairs. Whoever may use the unix socket may change it."""

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError
from manager.api.override_http import Commit, changes, require_known, required
from manager.overrides.steering import read_steer_override, usual_address
from manager.state import FleetState

QPN_DIGITS = 8


class SteerApi:
    """Answers GET, PUT and DELETE; a change is sent to its host at once."""

    def __init__(self, state: FleetState, commit: Commit) -> None:
        self._state = state
        self._commit = commit

    def routes(self) -> list[web.RouteDef]:
        """For the application."""
        return [
            web.get("/v1/steer", self._get),
            web.put("/v1/steer", changes(self._put)),
            web.delete("/v1/steer", changes(self._delete)),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        overrides = self._state.steering.all(request.query.get("host", ""))
        return web.json_response({"steered": [msgspec.structs.asdict(override) for override in overrides]})

    async def _put(self, request: web.Request) -> web.Response:
        override = read_steer_override(await request.read())
        require_known(self._state, override.host, override.nic)
        self._state.steering.set(override)
        await self._commit()
        return web.json_response(msgspec.structs.asdict(override))

    async def _delete(self, request: web.Request) -> web.Response:
        host, nic, dst, qpn = required(request.query, "host", "nic", "dst", "qpn")
        if not qpn.isdecimal() or len(qpn) > QPN_DIGITS:
            raise ConfigError(f"qpn: {qpn!r} is no whole number", "give a queue pair number")
        if not self._state.steering.unset((host, nic, usual_address(dst), int(qpn))):
            raise ConfigError(f"{dst} QPN {qpn} is not steered at {host}/{nic}")
        await self._commit()
        return web.json_response({})
