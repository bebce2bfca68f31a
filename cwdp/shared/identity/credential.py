"""A process's credential: its key, what the fleet's authority says of that, and by what it knows the fleet.

A file holds all of it, in the form that NATS's own tools read (`--creds FILE --tlsca FILE`), for its owner only.
"""

import os
import re
import ssl
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import nkeys

from cwdp.errors import IdentityError
from cwdp.shared.durations import in_words
from cwdp.shared.identity import jwt

SERVER_NAME = "cwdp-bus"
"""What every bus server's certificate is for, wherever it runs: the fleet's authority signs no others."""

INBOX, JOINING_INBOX = "_INBOX", "_INBOX_JOINING"
JOINING_TAG = "joining"
"""Of who may ask to be taken in as a host, and is not that host yet."""

_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\n(.*?)\n-+END \1-----", re.DOTALL)
_JWT, _SEED, _CERTIFICATE, _CONTROL = "NATS USER JWT", "USER NKEY SEED", "CERTIFICATE", "CWDP CONTROL KEY"


@dataclass(frozen=True)
class Credential:
    """Who a process is.

    Attributes:
        token: the signed claims about its key, a user of the bus.
        seed: the key's secret.
        authority: the certificate that the bus servers' certificates are signed by, in PEM.
        control: the public key by which what leaders send is signed.
    """

    token: str
    seed: str = field(repr=False)
    authority: str
    control: str

    @cached_property
    def claims(self) -> dict[str, Any]:
        """What the token says."""
        return jwt.read(self.token)

    @cached_property
    def key(self) -> nkeys.KeyPair:
        """The key, to sign with."""
        return nkeys.from_seed(self.seed.encode())

    @property
    def name(self) -> str:
        """Of the host, or what else it is."""
        return str(self.claims.get("name", ""))

    @property
    def pod(self) -> str:
        """In which part of the fleet a host is; empty for who is of no pod."""
        return next((tag.removeprefix("pod:") for tag in self._tags if tag.startswith("pod:")), "")

    @property
    def inbox(self) -> str:
        """Where answers come."""
        inbox = JOINING_INBOX if JOINING_TAG in self._tags else INBOX
        return f"{inbox}.{self.pod}.{self.name}" if self.pod else inbox

    @property
    def _tags(self) -> list[str]:
        return list(self.claims.get("nats", {}).get("tags", ()))

    @property
    def issued_s(self) -> float:
        """When it was signed, in seconds since 1970."""
        return float(self.claims.get("iat", 0))

    @property
    def expires_s(self) -> float | None:
        """When it ends, in seconds since 1970; None for never."""
        expires = self.claims.get("exp")
        return None if expires is None else float(expires)

    def renewed(self, token: str, seed: str) -> Self:
        """The same with another key and what is said of it."""
        return replace(self, token=token, seed=seed)

    def require_valid(self) -> None:
        """Let through what holds now.

        Raises:
            IdentityError: it has expired, or holds later only.
        """
        now_s = time.time()
        if self.expires_s is not None and self.expires_s <= now_s:
            raise IdentityError(
                f"the credential of {self.name} expired {in_words(now_s - self.expires_s)} ago",
                "set this host's clock if it is wrong; otherwise have `cwdp fleet invite HOST` run, and join anew",
            )
        if self.issued_s > now_s + 60:
            raise IdentityError(
                f"the credential of {self.name} was signed {in_words(self.issued_s - now_s)} ahead of this host's clock",
                "set this host's clock; it must be right within a minute when a host joins",
            )

    def tls(self) -> ssl.SSLContext:
        """What the connection to a bus server is made with: nobody but servers of this fleet are spoken to."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.authority)
        return context

    def save(self, path: Path) -> None:
        """Write it, whole or not at all, for its owner only.

        Raises:
            IdentityError: it cannot be written.
        """
        blocks = [(_JWT, self.token), (_SEED, self.seed), (_CONTROL, self.control)]
        text = "\n".join(f"-----BEGIN {kind}-----\n{data}\n------END {kind}------\n" for kind, data in blocks)
        write_secret(path, f"{text}\n{self.authority}")


def load(path: Path) -> Credential:
    """Read a credential.

    Raises:
        IdentityError: there is none, others may read it, or it is none.
    """
    hint = "have `cwdp fleet invite HOST` run by an administrator, then `cwdp agent join TOKEN` here"
    try:
        text, mode = path.read_text(), path.stat().st_mode
    except OSError as error:
        raise IdentityError(f"cannot read the credential {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise IdentityError(f"{path} is no credential", hint) from error
    if mode & 0o077:
        raise IdentityError(f"{path} can be read by others than its owner", f"run: chmod 600 {path}")
    blocks = dict(_BLOCK.findall(text))
    if not {_JWT, _SEED, _CONTROL, _CERTIFICATE} <= blocks.keys():
        raise IdentityError(f"{path} is no credential", hint)
    authority = f"-----BEGIN {_CERTIFICATE}-----\n{blocks[_CERTIFICATE]}\n-----END {_CERTIFICATE}-----\n"
    credential = Credential(blocks[_JWT].strip(), blocks[_SEED].strip(), authority, blocks[_CONTROL].strip())
    try:
        is_own = credential.claims.get("sub") == jwt.public_key(credential.key)
    except nkeys.NkeysError as error:
        raise IdentityError(f"{path} holds no key", hint) from error
    if not is_own:
        raise IdentityError(f"{path}: its token is of another key", hint)
    return credential


def load_own(path: Path, name: str) -> Credential:
    """Read the credential of a host whose name on the bus is `name`.

    Raises:
        IdentityError: there is none, it is not this host's, or it does not hold now.
    """
    credential = load(path)
    if credential.name != name:
        raise IdentityError(
            f"{path} is of {credential.name!r}, and this host is {name!r}",
            "set `host` in the configuration, or join anew with a token for this host",
        )
    credential.require_valid()
    return credential


def write_secret(path: Path, text: str) -> None:
    """Write a file, whole or not at all, for its owner only.

    Raises:
        IdentityError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise IdentityError(
            f"cannot write {path}: {error.strerror}", "run this as who may write there"
        ) from error
