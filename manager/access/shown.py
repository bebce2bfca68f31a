"""The credential that somebody shows by TCP, and whether it counts.

Of several the plainest counts, and that alone: what stands in the header `Authorization` (RFC 6750), else the browser's
session, else the certificate of the connection. Whoever shows a wrong one is refused, whatever else they show. No other header
is looked at, and no address of a request holds a credential.
"""

import time
from typing import NamedTuple

from aiohttp import web

from cwdp.errors import IdentityError
from cwdp.shared.durations import in_words
from manager.access.grants import Grant, Grants, Kind, digest
from manager.access.refusals import Reason

SKEW_S = 60.0
"""By so much clocks of managers may differ."""

AUTHORIZATION = "Authorization"
ANOTHER = "ask an administrator for another: `cwdp fleet token` or `cwdp fleet certificate`"


class UnknownCallerError(IdentityError):
    """Who asks shows nothing that counts; `reason` is counted."""

    def __init__(self, reason: Reason, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.reason: Reason = reason


class Shown(NamedTuple):
    """A credential, by its kind and SHA-256."""

    kind: Kind
    sha256: str


def shown(request: web.Request, session: str | None) -> Shown | None:
    """What somebody shows; None for nothing.

    Args:
        request: theirs.
        session: the SHA-256 of the token of their browser's session.

    Raises:
        UnknownCallerError: it has not the form of one.
    """
    headers = request.headers.getall(AUTHORIZATION, [])
    if headers:
        return of_token(_bearer(headers))
    if session is not None:
        return Shown("token", session)
    tls = request.transport.get_extra_info("ssl_object") if request.transport else None
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    return None if certificate is None else Shown("certificate", digest(certificate))


def of_token(token: str) -> Shown:
    """A token, as it is shown."""
    return Shown("token", digest(token.encode(errors="surrogateescape")))


def grant_of(grants: Grants, found: Shown) -> Grant:
    """What a credential is for.

    Raises:
        UnknownCallerError: it does not count.
    """
    grant, now_s = grants.find(found.kind, found.sha256), time.time()
    if grant is None:
        whose: dict[Kind, str] = {"token": "that token", "certificate": "that certificate"}
        raise UnknownCallerError(
            "unknown", f"{whose[found.kind]} does not count here: revoked, or of another fleet", ANOTHER
        )
    whose_own = f"the {grant.kind} of {grant.name}"
    if grant.expires_s <= now_s:
        raise UnknownCallerError(
            "expired", f"{whose_own} expired {in_words(now_s - grant.expires_s)} ago", ANOTHER
        )
    if grant.issued_s > now_s + SKEW_S:
        raise UnknownCallerError(
            "not_yet_valid",
            f"{whose_own} was made {in_words(grant.issued_s - now_s)} ahead of this manager's clock",
            "set the manager's clock",
        )
    return grant


def _bearer(headers: list[str]) -> str:
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise UnknownCallerError(
            "malformed",
            f"that is no header {AUTHORIZATION} with a token",
            f"one {AUTHORIZATION}: Bearer TOKEN",
        )
    return token.strip()
