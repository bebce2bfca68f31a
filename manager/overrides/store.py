"""What operators want of hosts, each override under its key, kept in a file beside the manager's state."""

import contextlib
import logging
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cwdp.errors import ManagerError


class Keyed(Protocol):
    """An override: a struct of msgspec's."""

    @property
    def host(self) -> str:
        """Whose override it is."""

    @property
    def nic(self) -> str:
        """Of which of its NICs."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What there is one override for at most; its host comes first."""


_Override = TypeVar("_Override", bound=Keyed)
_log = logging.getLogger("cwdp.manager")


class OverrideTable(Generic[_Override]):
    """Every override of one kind. A change is in the file before it is in force.

    Args:
        path: the file; None keeps nothing.
        kind: of the overrides.

    Attributes:
        revision: another one after each change.

    Raises:
        ManagerError: there is a file and it cannot be read.
    """

    def __init__(self, path: Path | None, kind: type[_Override]) -> None:
        self.revision = 0
        self._path = path
        self._kind = kind
        self._overrides: dict[tuple[Any, ...], _Override] = {}
        if path is not None and path.exists():
            self._overrides = {override.key: override for override in _load(path, kind)}

    def __len__(self) -> int:
        return len(self._overrides)

    def set(self, override: _Override) -> _Override | None:
        """Take an override in, in place of the one with the same key, which is returned.

        Raises:
            ManagerError: it cannot be kept.
        """
        before = self._overrides.get(override.key)
        self._keep(self._overrides | {override.key: override})
        return before

    def unset(self, key: tuple[Any, ...]) -> _Override | None:
        """Drop an override, which is returned; None where there is none.

        Raises:
            ManagerError: that cannot be kept.
        """
        dropped = self._overrides.get(key)
        if dropped is not None:
            self._keep({other: override for other, override in self._overrides.items() if other != key})
        return dropped

    def all(self, host: str = "") -> list[_Override]:
        """Those of a host, or of all, in order."""
        return [self._overrides[key] for key in sorted(self._overrides) if host in ("", key[0])]

    def of(self, key: tuple[Any, ...]) -> _Override | None:
        """The one with a key; None where there is none."""
        return self._overrides.get(key)

    def dump(self) -> bytes:
        """Every override, for `load`."""
        return msgspec.json.encode(list(self._overrides.values()))

    def load(self, data: bytes) -> None:
        """Take these overrides in place of all that there are, whether or not the file can have them.

        Raises:
            ManagerError: they cannot be read.
        """
        try:
            overrides: list[_Override] = msgspec.json.decode(data, type=list[self._kind])  # type: ignore[name-defined]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManagerError(f"they cannot be read: {error}", "ask for all of it anew") from error
        self._overrides = {override.key: override for override in overrides}
        self.revision += 1
        try:
            self._save(self._overrides)
        except ManagerError as error:
            _log.warning("%s", error.message)

    def _keep(self, overrides: dict[tuple[Any, ...], _Override]) -> None:
        self._save(overrides)
        self._overrides = overrides
        self.revision += 1

    def _save(self, overrides: dict[tuple[Any, ...], _Override]) -> None:
        if self._path is not None:
            _save(self._path, list(overrides.values()))


def _load(path: Path, kind: type[_Override]) -> list[_Override]:
    try:
        overrides: list[_Override] = msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ManagerError(
            f"{path} cannot be read: {error}", "mend it, or move it away and ask for all of it anew"
        ) from error
    return overrides


def _save(path: Path, overrides: list[_Override]) -> None:
    draft = path.with_suffix(".new")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(overrides)))
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ManagerError(f"cannot write {path}: {error.strerror}", "is the disk full?") from error
