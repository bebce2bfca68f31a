"""`/v1/access`: who has a token or a certificate; administrators make and revoke them. `/v1/authority`: by what to know us."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web
from msgspec import Struct

from cwdp.errors import ConfigError
from manager.access.callers import CALLER, Callers
from manager.access.grants import DEFAULT_DAYS, Grant, Grants, digest, granted, new_token
from manager.access.roles import Role, RoleName
from manager.identity import certificates
from manager.identity.authority import Authority

Commit = Callable[[], Awaitable[None]]
"""Has a change kept on the bus, or undone: then it raises `BusError`."""


class Note(Protocol):
    """Tells history that something of a kind happened."""

    def __call__(self, kind: str, detail: str, *, why: str | None = None) -> None:
        """To people; why somebody did it, where they said."""


class _Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a credential is asked for with; a certificate by the public half of its key, in PEM."""

    name: str
    role: RoleName
    days: float = DEFAULT_DAYS
    public_key: str | None = None


def routes(
    grants: Grants, authority: Authority, callers: Callers, commit: Commit, note: Note
) -> list[web.RouteDef]:
    """For the application."""

    async def listed(_request: web.Request) -> web.Response:
        return web.json_response({"access": [_row(each) for each in grants.all()]})

    async def made(request: web.Request) -> web.Response:
        wanted, by = _wanted(await request.read()), request[CALLER].name
        if wanted.public_key is None:
            token = new_token()
            sha256, told = digest(token.encode()), {"token": token}
            grant = granted(wanted.name, wanted.role, "token", sha256, days=wanted.days, by=by)
        else:
            grant = granted(wanted.name, wanted.role, "certificate", "", days=wanted.days, by=by)
            certificate = authority.client_certificate(
                wanted.public_key, name=wanted.name, role=wanted.role, days=wanted.days
            )
            grant = msgspec.structs.replace(grant, sha256=digest(certificates.der(certificate)))
            told = {"certificate": certificate}
        grants.add(grant)
        await commit()
        note("access_granted", f"by {by}: {grant}; before: nothing", why=request[CALLER].why)
        return web.json_response(_row(grant) | told, headers={"Cache-Control": "no-store"})

    async def revoked(request: web.Request) -> web.Response:
        grant, by = grants.drop(request.query.get("name", "")), request[CALLER].name
        await commit()
        note("access_revoked", f"by {by}: no more {grant}", why=request[CALLER].why)
        return web.json_response(_row(grant))

    async def told(_request: web.Request) -> web.Response:
        return web.json_response({"certificate": authority.root})

    path = "/v1/access"
    return [
        web.get(path, callers.changes(Role.ADMINISTRATOR, listed)),
        web.put(path, callers.changes(Role.ADMINISTRATOR, made)),
        web.delete(path, callers.changes(Role.ADMINISTRATOR, revoked)),
        web.get("/v1/authority", told),
    ]


def _row(grant: Grant) -> dict[str, Any]:
    return {
        "name": grant.name,
        "role": grant.role,
        "kind": grant.kind,
        "issued_s": grant.issued_s,
        "expires_s": grant.expires_s,
        "by": grant.by,
    }


def _wanted(body: bytes) -> _Wanted:
    try:
        return msgspec.json.decode(body, type=_Wanted)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"that is no credential to make: {error}",
            "give a name and a role: metrics, viewer, operator or administrator",
        ) from error
