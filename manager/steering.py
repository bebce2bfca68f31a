"""What operators want of the queue pairs of all hosts, kept in a file beside the manager's state."""

import contextlib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cwdp.errors import ConfigError, ManagerError
from cwdp.shared.messages import SteerQp

SourcePort = Annotated[int, Meta(ge=49152, le=65535)]
Qpn = Annotated[int, Meta(ge=0, le=0xFFFFFF)]
Key = tuple[str, str, str, int]


class Wish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one queue pair's packets are to go; see `cwdp.shared.messages.SteerQp`."""

    host: str
    nic: str
    dst: str
    qpn: Qpn
    sport: SourcePort
    backup_sport: SourcePort | None = None
    flow_label: bool = False

    @property
    def key(self) -> Key:
        """What there is one wish for at most."""
        return self.host, self.nic, self.dst, self.qpn

    def message(self) -> SteerQp:
        """For the host's document."""
        return SteerQp(
            nic=self.nic,
            dst_addr=self.dst,
            qpn=self.qpn,
            sport=self.sport,
            backup_sport=self.backup_sport,
            flow_label=self.flow_label,
        )


def read_wish(body: bytes) -> Wish:
    """A wish from JSON, its address in the one usual form.

    Raises:
        ConfigError: it is none, or cannot be granted anywhere.
    """
    try:
        wish = msgspec.json.decode(body, type=Wish)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), "see: cwdp steer set --help") from error
    wish = msgspec.structs.replace(wish, dst=usual_address(wish.dst))
    if wish.backup_sport == wish.sport:
        raise ConfigError(f"source port {wish.sport} cannot be its own backup", "give another one")
    return wish


def usual_address(text: str) -> str:
    """An IP address as it is usually written.

    Raises:
        ConfigError: it is none.
    """
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no IP address", "give one like 10.0.0.2 or fd00::2") from error


class SteerTable:
    """Every wish. A change is in the file before it is in force.

    Args:
        path: the file; None keeps nothing.

    Raises:
        ManagerError: there is a file and it cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._wishes: dict[Key, Wish] = {}
        if path is not None and path.exists():
            self._wishes = {wish.key: wish for wish in _load(path)}

    def __len__(self) -> int:
        return len(self._wishes)

    def set(self, wish: Wish) -> None:
        """Take a wish in, in place of the one for the same queue pair.

        Raises:
            ManagerError: it cannot be kept.
        """
        self._keep(self._wishes | {wish.key: wish})

    def unset(self, key: Key) -> bool:
        """Drop a wish; False where there is none.

        Raises:
            ManagerError: that cannot be kept.
        """
        if key not in self._wishes:
            return False
        self._keep({other: wish for other, wish in self._wishes.items() if other != key})
        return True

    def all(self, host: str = "") -> list[Wish]:
        """Those of a host, or of all, in order."""
        return [self._wishes[key] for key in sorted(self._wishes) if host in ("", key[0])]

    def messages(self) -> dict[str, list[SteerQp]]:
        """What each host is to be told."""
        by_host: dict[str, list[SteerQp]] = {}
        for wish in self.all():
            by_host.setdefault(wish.host, []).append(wish.message())
        return by_host

    def _keep(self, wishes: dict[Key, Wish]) -> None:
        if self._path is not None:
            _save(self._path, list(wishes.values()))
        self._wishes = wishes


def _load(path: Path) -> list[Wish]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Wish])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ManagerError(
            f"{path} cannot be read: {error}", "mend it, or move it away and steer anew"
        ) from error


def _save(path: Path, wishes: list[Wish]) -> None:
    draft = path.with_suffix(".new")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(wishes)))
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ManagerError(f"cannot write {path}: {error.strerror}", "is the disk full?") from error
