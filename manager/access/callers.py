"""Who asks the manager for something, and what that makes them.

By the unix socket the kernel tells (unix(7)): root and the manager's own user are administrators; others are what their
groups are. By TCP they are what the credential is for that they show (`shown.py`); without one they are nobody, but on a
loopback listener that is open to viewers.
"""

import errno
import grp
import os
import pwd
import socket as sockets
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from cwdp.errors import BusError, ConfigError, CwdpError, IdentityError, PrivilegeError
from cwdp.shared.identity.why import read_why
from manager.access.grants import Grants
from manager.access.refusals import Refusals
from manager.access.roles import Role, role_of
from manager.access.sessions import Sessions
from manager.access.shown import Shown, UnknownCallerError, grant_of, shown
from manager.config import RoleSettings

SO_PEERGROUPS = 59
MOST_GROUPS = 256
"""That Python reads of a socket option; of who has more, the user's are looked up by name."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Caller:
    """Who asks: a user's name, a credential's, or an address; `is_local` is who comes by the unix socket.

    `why` is what they say a change is for, in the query; only `Callers.changes` reads it.
    """

    name: str
    role: Role
    is_local: bool = False
    why: str | None = None


CALLER = web.RequestKey("caller", Caller)
"""Who asks, for handlers that change something."""

OTHERS = web.AppKey("others", Role)
"""What who comes by TCP and shows nothing is in an application; nobody unless set."""

COOKIE = web.AppKey("cookie", str)
"""The name of the cookie of an application's sessions; it has none unless set."""


class Callers:
    """Tells who asks.

    Args:
        settings: which groups are what.
        grants: the credentials that count.

    Attributes:
        sessions: of browsers.
        refusals: who was refused why.
    """

    def __init__(self, settings: RoleSettings, grants: Grants) -> None:
        self.sessions, self.refusals = Sessions(), Refusals()
        self._grants = grants
        self._groups = {
            Role.ADMINISTRATOR: settings.administrators,
            Role.OPERATOR: settings.operators,
            Role.VIEWER: settings.viewers,
        }

    def of(self, request: web.Request) -> Caller:
        """Who asks this.

        Raises:
            UnknownCallerError: they come by TCP, and show nothing that counts.
        """
        sock = request.transport.get_extra_info("socket") if request.transport else None
        if sock is not None and sock.family == sockets.AF_UNIX:
            _, uid, gid = struct.unpack("3i", sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12))
            role = self.role(uid, {gid, *_groups(sock, uid, gid)})
            return Caller(_user(uid), role, is_local=True)
        found = shown(request, self.session(request))
        if found is not None:
            return self.of_shown(found)
        others = request.app.get(OTHERS, Role.NONE)
        if others is Role.NONE:
            raise UnknownCallerError(
                "none",
                "who comes by TCP shows a token or a certificate",
                "ask an administrator for `cwdp fleet token NAME --role ROLE`; commands take it by CWDP_TOKEN_FILE",
            )
        return Caller(request.remote or "unknown", others)

    def of_shown(self, found: Shown) -> Caller:
        """Who shows a credential.

        Raises:
            UnknownCallerError: it does not count.
        """
        grant = grant_of(self._grants, found)
        return Caller(f"{grant.name} ({grant.kind})", role_of(grant.role))

    def role(self, uid: int, gids: set[int]) -> Role:
        """What a user of these groups is; a group that this machine does not know is nobody's."""
        if uid in (0, os.geteuid()):
            return Role.ADMINISTRATOR
        return next(
            (role for role, names in self._groups.items() if any(_gid(name) in gids for name in names)),
            Role.NONE,
        )

    def require(self, request: web.Request, role: Role) -> Caller:
        """Who asks this, at least of that role.

        Raises:
            UnknownCallerError: they come by TCP, and show nothing that counts.
            PrivilegeError: they are less.
        """
        caller = self.of(request)
        self.require_role(caller, role)
        return caller

    def require_role(self, caller: Caller, role: Role) -> None:
        """Let through who is of a role.

        Raises:
            PrivilegeError: they are less.
        """
        if caller.role >= role:
            return
        needed = role.title
        if caller.is_local:
            names = " or ".join(self._groups[max(role, Role.VIEWER)]) or "of nobody"
            raise PrivilegeError(
                f"{caller.name} is no {needed}",
                f"that takes the group {names}; see [roles] of the manager's configuration",
            )
        raise PrivilegeError(
            f"that takes the role {needed}, and {caller.name} has the role {caller.role.title}",
            f"ask an administrator for `cwdp fleet token NAME --role {needed}`",
        )

    def holds(self, request: web.Request, role: Role) -> bool:
        """Whether who asked this is still of a role: of an answer that goes on for long."""
        try:
            self.require(request, role)
        except (IdentityError, PrivilegeError):
            return False
        return True

    def admit(self, request: web.Request, role: Role) -> web.Response | None:
        """Note who asks; what they are told where they are less than a role."""
        try:
            request[CALLER] = self.require(request, role)
        except (IdentityError, PrivilegeError) as error:
            return self.refused(request, error)
        return None

    def refused(self, request: web.Request, error: CwdpError) -> web.Response:
        """What somebody is told who may not, counted."""
        reason = error.reason if isinstance(error, UnknownCallerError) else "role"
        if self.refusals.add(reason, request.remote or "unknown"):
            told = {
                "error": "too many wrong credentials from your address",
                "hint": "wait, then show a right one",
            }
            return web.json_response(told, status=429, headers={"Retry-After": "10"})
        response = refusal(error)
        if response.status == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="cwdp"'
        return response

    def changes(self, role: Role, handler: Handler) -> Handler:
        """A handler that changes something, for callers of a role; its refusals are told as JSON."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            told = self.admit(request, role)
            if told is not None:
                return told
            try:
                why = read_why(request.query.get("why", ""))
                request[CALLER] = replace(request[CALLER], why=why)
                return await handler(request)
            except CwdpError as error:
                return refusal(error)
            except web.HTTPRequestEntityTooLarge:
                return refusal(ConfigError("that is more than a host can be told", "ask for less"))

        return guarded

    def session(self, request: web.Request) -> str | None:
        """The SHA-256 of the token of a browser's session; None where it has none that is open."""
        cookie = request.app.get(COOKIE)
        value = None if cookie is None else request.cookies.get(cookie)
        return None if value is None else self.sessions.find(value)


def refusal(error: CwdpError) -> web.Response:
    """400 for what was wrong in the asking, 401 and 403 for who asks, 503 or 500 for what is wrong here."""
    statuses = {ConfigError: 400, UnknownCallerError: 401, PrivilegeError: 403, BusError: 503}
    status = next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)
    return web.json_response({"error": error.message, "hint": error.hint}, status=status)


def _groups(sock: sockets.socket, uid: int, gid: int) -> Sequence[int]:
    try:
        data = sock.getsockopt(sockets.SOL_SOCKET, SO_PEERGROUPS, 4 * MOST_GROUPS)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return os.getgrouplist(_user(uid), gid)
    return struct.unpack(f"{len(data) // 4}I", data)


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
