"""`/v1/credential`: which hosts are let onto the bus. Administrators invite and revoke them."""

from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from cwdp.errors import ConfigError
from manager.access.callers import CALLER, Callers
from manager.access.roles import Role
from manager.identity.service import INVITED_HOURS, Credentials


class _Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an invitation is asked for with."""

    host: str
    bus: str | None = None
    hours: float = INVITED_HOURS


def routes(credentials: Credentials, callers: Callers) -> list[web.RouteDef]:
    """For the application."""

    async def listed(_request: web.Request) -> web.Response:
        return web.json_response({"hosts": await credentials.hosts()})

    async def invited(request: web.Request) -> web.Response:
        wanted = _wanted(await request.read())
        word = await credentials.invite(
            wanted.host, by=request[CALLER].name, why=request[CALLER].why, bus=wanted.bus, hours=wanted.hours
        )
        return web.json_response({"host": wanted.host, "token": word})

    async def revoked(request: web.Request) -> web.Response:
        host = request.query.get("host", "")
        keys = await credentials.revoke(host, by=request[CALLER].name, why=request[CALLER].why)
        return web.json_response({"host": host, "keys": keys})

    async def rotated(request: web.Request) -> web.Response:
        hosts = credentials.rotate_keys(by=request[CALLER].name, why=request[CALLER].why)
        return web.json_response({"hosts": hosts})

    path = "/v1/credential"
    return [
        web.get(path, callers.changes(Role.ADMINISTRATOR, listed)),
        web.put(path, callers.changes(Role.ADMINISTRATOR, invited)),
        web.put(f"{path}/keys", callers.changes(Role.ADMINISTRATOR, rotated)),
        web.delete(path, callers.changes(Role.ADMINISTRATOR, revoked)),
    ]


def _wanted(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body, type=_Wanted)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"that is no invitation to make: {error}", "give host, and bus and hours if need be"
        ) from error
