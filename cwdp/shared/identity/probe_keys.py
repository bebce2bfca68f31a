"""The cluster's probe keys: the file in which a host keeps them, and how it asks the leader for them."""

import hashlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from cwdp.errors import ConfigError
from cwdp.shared.config import read_toml
from cwdp.shared.identity.credential import write_secret

KEYS = "keys"
"""The kind of question, and of its answer."""

MAX_KEYS = 2


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """One cluster key: a number from 0 to 255 and 16 bytes in hex."""

    id: Annotated[int, Meta(ge=0, le=255)]
    secret: Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")]


class KeyFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One key, or two during a rotation; `send` names the one to sign with."""

    send: int
    key: Annotated[list[Key], Meta(min_length=1, max_length=MAX_KEYS)]

    def secrets(self) -> dict[int, bytes]:
        """The secret of each key by its number."""
        return {key.id: bytes.fromhex(key.secret) for key in self.key}

    @property
    def fingerprint(self) -> str:
        """By which equal ones are known; tells nothing of the secrets."""
        said = f"{self.send} {sorted((key.id, key.secret.lower()) for key in self.key)}"
        return hashlib.sha256(said.encode()).hexdigest()[:16]


class KeysRequest(Struct, frozen=True, kw_only=True):
    """A host asks for the cluster's keys, and tells which it has by their fingerprint; empty for none."""

    host: str
    have: str = ""


class KeysAnswer(Struct, frozen=True, kw_only=True):
    """The keys; None where the host has them. It is to ask again after so long: soon while keys are being rotated."""

    host: str
    keys: KeyFile | None = None
    again_s: Annotated[float, Meta(ge=0.5, le=3600)] = 10.0


def write_keys(path: Path, keys: KeyFile) -> None:
    """Write the file, for its owner only.

    Raises:
        IdentityError: it cannot be written.
    """
    sections = "".join(f'\n[[key]]\nid = {key.id}\nsecret = "{key.secret}"\n' for key in keys.key)
    write_secret(path, f"send = {keys.send}\n{sections}")


def read_keys(path: Path) -> KeyFile:
    """Read the cluster's keys.

    Raises:
        ConfigError: the file is missing or wrong, readable by others, or its keys do not fit together.
    """
    keys = read_toml(path, KeyFile)
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others than its owner", f"run: chmod 600 {path}")
    ids = [key.id for key in keys.key]
    if keys.send not in ids:
        raise ConfigError(f"{path}: send = {keys.send} names no key of this file", f"keys here: {ids}")
    if len({i % MAX_KEYS for i in ids}) < len(ids):
        raise ConfigError(
            f"{path}: the ids {ids} are both even or both odd", "number the next key one higher than the last"
        )
    return keys
