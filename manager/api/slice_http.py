"""`/v1/slice`: what operators want of bandwidth slices. Whoever may use the unix socket may change it."""

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError
from manager.api.override_http import Commit, changes, require_known, required
from manager.overrides.slices import read_slice_override
from manager.state import FleetState


class SliceApi:
    """Answers GET, PUT and DELETE; a change is sent to its host at once."""

    def __init__(self, state: FleetState, commit: Commit) -> None:
        self._state = state
        self._commit = commit

    def routes(self) -> list[web.RouteDef]:
        """For the application."""
        return [
            web.get("/v1/slice", self._get),
            web.put("/v1/slice", changes(self._put)),
            web.delete("/v1/slice", changes(self._delete)),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        overrides = self._state.slicing.all(request.query.get("host", ""))
        return web.json_response({"interfaces": msgspec.to_builtins(overrides)})

    async def _put(self, request: web.Request) -> web.Response:
        override = read_slice_override(await request.read())
        require_known(self._state, override.host, override.nic)
        self._state.slicing.set(override)
        await self._commit()
        return web.json_response(msgspec.to_builtins(override))

    async def _delete(self, request: web.Request) -> web.Response:
        host, nic = required(request.query, "host", "nic")
        if not self._state.slicing.unset((host, nic)):
            raise ConfigError(f"no slices are wanted at {host}/{nic}", "what was applied there by hand stays")
        await self._commit()
        return web.json_response({})
