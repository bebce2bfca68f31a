"""A state directory is one manager's at a time. Who can lock it knows that the manager that had it before runs no more."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from cwdp.errors import ManagerError

FILE = "lock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Owner(Struct, frozen=True):
    """Who has a state directory: `manager` as in its claim, on which boot of the machine."""

    manager: str
    boot_id: str


class StateLock:
    """As a context: the directory is this manager's.

    A directory that was copied to another machine, or is there after a reboot, tells of nobody.

    Args:
        directory: that is there.
        manager: who this manager is; see `manager.bus.lease.Claim`.

    Attributes:
        before: who had it before, and runs no more; None where that is not known.
    """

    def __init__(self, directory: Path, manager: str) -> None:
        self.before: str | None = None
        self._path, self._owner = directory / FILE, _Owner(manager, _BOOT_ID.read_text().strip())
        self._fd = -1

    def __enter__(self) -> Self:
        """Have it.

        Raises:
            ManagerError: another manager has it, or it cannot be written.
        """
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._take()
        except OSError as error:
            raise ManagerError(
                f"cannot lock {self._path}: {error.strerror}",
                "give a directory that the manager may write with `--state-dir DIR`",
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._fd)
            raise ManagerError(
                f"another manager runs with the state directory {self._path.parent}",
                "stop that one, or give this one another directory with `--state-dir DIR`",
            ) from error
        earlier = _owner(os.pread(self._fd, 4096, 0))
        if earlier is not None and earlier.boot_id == self._owner.boot_id:
            self.before = earlier.manager
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode(self._owner), 0)


def _owner(data: bytes) -> _Owner | None:
    try:
        return msgspec.json.decode(data, type=_Owner)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
