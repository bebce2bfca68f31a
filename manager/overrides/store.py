"""What operators want of hosts, each wish under its key, kept in a file beside the manager's state."""

import contextlib
import logging
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cwdp.errors import ManagerError


class Keyed(Protocol):
    """A wish: a struct of msgspec's."""

    @property
    def host(self) -> str:
        """Whose wish it is."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What there is one wish for at most; its host comes first."""


_W = TypeVar("_W", bound=Keyed)
_log = logging.getLogger("cwdp.manager")


class WishTable(Generic[_W]):
    """Every wish of one kind. A change is in the file before it is in force.

    Args:
        path: the file; None keeps nothing.
        kind: of the wishes.

    Attributes:
        revision: another one after each change.

    Raises:
        ManagerError: there is a file and it cannot be read.
    """

    def __init__(self, path: Path | None, kind: type[_W]) -> None:
        self.revision = 0
        self._path = path
        self._kind = kind
        self._wishes: dict[tuple[Any, ...], _W] = {}
        if path is not None and path.exists():
            self._wishes = {wish.key: wish for wish in _load(path, kind)}

    def __len__(self) -> int:
        return len(self._wishes)

    def set(self, wish: _W) -> None:
        """Take a wish in, in place of the one with the same key.

        Raises:
            ManagerError: it cannot be kept.
        """
        self._keep(self._wishes | {wish.key: wish})

    def unset(self, key: tuple[Any, ...]) -> bool:
        """Drop a wish; False where there is none.

        Raises:
            ManagerError: that cannot be kept.
        """
        if key not in self._wishes:
            return False
        self._keep({other: wish for other, wish in self._wishes.items() if other != key})
        return True

    def all(self, host: str = "") -> list[_W]:
        """Those of a host, or of all, in order."""
        return [self._wishes[key] for key in sorted(self._wishes) if host in ("", key[0])]

    def dump(self) -> bytes:
        """Every wish, for `load`."""
        return msgspec.json.encode(list(self._wishes.values()))

    def load(self, data: bytes) -> None:
        """Take these wishes in place of all that there are, whether or not the file can have them.

        Raises:
            ManagerError: they cannot be read.
        """
        try:
            wishes: list[_W] = msgspec.json.decode(data, type=list[self._kind])  # type: ignore[name-defined]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManagerError(f"they cannot be read: {error}", "ask for all of it anew") from error
        self._wishes = {wish.key: wish for wish in wishes}
        self.revision += 1
        try:
            self._save(self._wishes)
        except ManagerError as error:
            _log.warning("%s", error.message)

    def _keep(self, wishes: dict[tuple[Any, ...], _W]) -> None:
        self._save(wishes)
        self._wishes = wishes
        self.revision += 1

    def _save(self, wishes: dict[tuple[Any, ...], _W]) -> None:
        if self._path is not None:
            _save(self._path, list(wishes.values()))


def _load(path: Path, kind: type[_W]) -> list[_W]:
    try:
        wishes: list[_W] = msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ManagerError(
            f"{path} cannot be read: {error}", "mend it, or move it away and ask for all of it anew"
        ) from error
    return wishes


def _save(path: Path, wishes: list[_W]) -> None:
    draft = path.with_suffix(".new")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(wishes)))
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ManagerError(f"cannot write {path}: {error.strerror}", "is the disk full?") from error
