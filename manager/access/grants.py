"""Who has been given a token or a certificate for the manager's TCP listeners, as what, and until when.

Of a token only its SHA-256 is kept: it has 256 random bits, so that tells nobody what it was; nor does the time that it takes to
look one up by it. What is not in the table
does not count, whoever signed it; to withdraw is to take it out.
"""

import hashlib
import logging
import re
import secrets
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from cwdp.errors import ConfigError, IdentityError, ManagerError
from cwdp.shared.identity.credential import write_secret
from manager.access.roles import RoleName

PREFIX = "cwdpt-"
"""Of every token, so that one that has got into a file or a log is found."""

TOKEN_BYTES = 32
DEFAULT_DAYS, MOST_DAYS = 90.0, 825.0
TOLD_DAYS = 30.0
"""For so long after its end it is told of a credential that it has expired."""

MOST = 2_000
DAY_S = 86_400.0

_log = logging.getLogger("cwdp.manager.access")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

Kind = Literal["token", "certificate"]


class Grant(Struct, frozen=True, kw_only=True):
    """What somebody, or some program, was given.

    Attributes:
        name: whose it is; of one credential only.
        sha256: in hex, of the token or of the certificate in DER.
        by: who gave it.
    """

    name: str
    role: RoleName
    kind: Kind
    sha256: str
    issued_s: float
    expires_s: float
    by: str

    def __str__(self) -> str:
        until = time.strftime("%Y-%m-%d", time.gmtime(self.expires_s))
        return f"{self.name} is {self.role} by {self.kind} until {until}"


class Grants:
    """All of them, kept in a file beside the manager's state and, by who leads, on the bus.

    Args:
        path: the file; None keeps nothing.

    Attributes:
        revision: another one after each change.

    Raises:
        ManagerError: there is a file and it cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self.revision = 0
        self._path = path
        self._of: dict[tuple[Kind, str], Grant] = {}
        if path is not None and path.exists():
            self._of = _by_digest(_read(path.read_bytes()))

    def all(self) -> list[Grant]:
        """All, by name; those that have expired too, for a while."""
        return sorted(self._of.values(), key=lambda each: each.name)

    def find(self, kind: Kind, sha256: str) -> Grant | None:
        """The one of a credential, whether or not it has expired."""
        return self._of.get((kind, sha256))

    def add(self, grant: Grant) -> None:
        """Let a credential count.

        Raises:
            ConfigError: there is one of that name, or there are too many.
            IdentityError: it cannot be kept.
        """
        now_s = time.time()
        kept = [each for each in self._of.values() if each.expires_s > now_s - TOLD_DAYS * DAY_S]
        if any(each.name == grant.name and each.expires_s > now_s for each in kept):
            raise ConfigError(
                f"there is a credential of {grant.name!r} already",
                f"choose another name, or first: cwdp fleet revoke-access {grant.name}",
            )
        if len(kept) >= MOST:
            raise ConfigError(f"there are {MOST} credentials already", "see: cwdp fleet access")
        self._keep([*(each for each in kept if each.name != grant.name), grant])

    def drop(self, name: str) -> Grant:
        """Let the credential of a name count no more; what it was.

        Raises:
            ConfigError: there is none.
            IdentityError: that cannot be kept.
        """
        dropped = next((each for each in self._of.values() if each.name == name), None)
        if dropped is None:
            raise ConfigError(f"there is no credential of {name!r}", "see: cwdp fleet access")
        self._keep([each for each in self._of.values() if each is not dropped])
        return dropped

    def dump(self) -> bytes:
        """All that must be kept."""
        return msgspec.json.encode(list(self._of.values()))

    def load(self, data: bytes) -> None:
        """Have what was kept, whether or not the file can.

        Raises:
            ManagerError: it is none of that.
        """
        grants = _read(data)
        if _by_digest(grants) == self._of:
            return
        self._take(grants)
        try:
            self._save(grants)
        except IdentityError as error:
            _log.warning("%s", error.message)

    def _keep(self, grants: list[Grant]) -> None:
        self._save(grants)
        self._take(grants)

    def _take(self, grants: list[Grant]) -> None:
        self._of = _by_digest(grants)
        self.revision += 1

    def _save(self, grants: list[Grant]) -> None:
        if self._path is not None:
            write_secret(self._path, msgspec.json.encode(grants).decode())


def new_token() -> str:
    """A token that nobody has."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(credential: bytes) -> str:
    """By which a credential is known."""
    return hashlib.sha256(credential).hexdigest()


def granted(name: str, role: RoleName, kind: Kind, sha256: str, *, days: float, by: str) -> Grant:
    """A grant from now on.

    Raises:
        ConfigError: nobody can have that name, or not for so long.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a credential", "letters, digits and . _ @ -, at most 64"
        )
    if not 0 < days <= MOST_DAYS:
        raise ConfigError(f"days: {days:g} is not within 0 and {MOST_DAYS:g}")
    now_s = time.time()
    return Grant(
        name=name,
        role=role,
        kind=kind,
        sha256=sha256,
        issued_s=now_s,
        expires_s=now_s + days * DAY_S,
        by=by,
    )


def _read(data: bytes) -> list[Grant]:
    try:
        return msgspec.json.decode(data, type=list[Grant])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManagerError(
            f"what is kept of tokens and certificates cannot be read: {error}",
            "move access.json of the manager's state directory away, and make them anew",
        ) from error


def _by_digest(grants: list[Grant]) -> dict[tuple[Kind, str], Grant]:
    return {(each.kind, each.sha256): each for each in grants}
