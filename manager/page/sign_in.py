"""`/v1/session`: a browser shows a token once and has a cookie from then on, as it can send no header with a stream."""

import msgspec
from aiohttp import web
from msgspec import Struct

from cwdp.errors import ConfigError, IdentityError, PrivilegeError
from manager.access.callers import CALLER, COOKIE, Callers, refusal
from manager.access.roles import Role
from manager.access.shown import of_token

SESSION = "/v1/session"


class _Token(Struct, frozen=True, forbid_unknown_fields=True):
    """What is shown."""

    token: str


class SignIn:
    """Opens and ends sessions.

    Args:
        callers: tells what tokens are for.
        is_secure: whether the listener speaks TLS.
    """

    def __init__(self, callers: Callers, *, is_secure: bool) -> None:
        self._callers, self._is_secure = callers, is_secure

    def routes(self) -> list[web.RouteDef]:
        """For the page's application."""
        return [
            web.get(SESSION, self._told),
            web.post(SESSION, self._opened),
            web.delete(SESSION, self._closed),
        ]

    async def _told(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        is_signed_in = self._callers.session(request) is not None
        told = {"name": caller.name, "role": caller.role.title, "signed_in": is_signed_in}
        return web.json_response(told)

    async def _opened(self, request: web.Request) -> web.Response:
        if not _is_from_the_page(request):
            return refusal(
                ConfigError("that does not come from the page", "send the token as JSON, from the page")
            )
        try:
            found = of_token(msgspec.json.decode(await request.read(), type=_Token).token.strip())
            caller = self._callers.of_shown(found)
            self._callers.require_role(caller, Role.VIEWER)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return refusal(ConfigError("that is no token", 'send {"token": "..."}'))
        except (IdentityError, PrivilegeError) as error:
            return self._callers.refused(request, error)
        response = web.json_response({"name": caller.name, "role": caller.role.title})
        response.set_cookie(
            request.app[COOKIE],
            self._callers.sessions.open(found.sha256),
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="Strict",
        )
        return response

    async def _closed(self, request: web.Request) -> web.Response:
        name = request.app[COOKIE]
        self._callers.sessions.close(request.cookies.get(name, ""))
        response = web.json_response({})
        response.del_cookie(name, path="/", secure=self._is_secure, httponly=True, samesite="Strict")
        return response


def _is_from_the_page(request: web.Request) -> bool:
    """Not a form of another site's: that can send no JSON, and browsers tell where they are (Fetch Metadata)."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    return request.content_type == "application/json" and site in ("same-origin", "none")
