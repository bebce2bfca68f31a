"""Sockets by which programs of any user connect."""

import asyncio
import logging
import socket
from collections import Counter
from pathlib import Path

SOCKET_MODE, FOLDER_MODE = 0o666, 0o755
BACKLOG = 128
RETRY_S = 5.0

_log = logging.getLogger("cwdp.agent")


async def listen_soon(listener: socket.socket, path: Path, counters: Counter[str], unusable: str) -> None:
    """As `listen`, again and again until it can; why it cannot is logged once.

    Args:
        listener: the socket.
        path: where.
        counters: in which each failure counts.
        unusable: under this name.
    """
    trouble = ""
    while True:
        try:
            listen(listener, path)
        except OSError as error:
            counters[unusable] += 1
            if str(error) != trouble:
                trouble = str(error)
                _log.warning("programs cannot connect socket=%s error=%s", path, error)
        else:
            return
        await asyncio.sleep(RETRY_S)


def listen(listener: socket.socket, path: Path) -> None:
    """Have a socket of sequenced packets listen at a path, in the place of one at which nobody listens any more.

    Raises:
        OSError: it cannot, or somebody listens there.
    """
    _make_folder(path.parent)
    _unlink_stale(path)
    listener.bind(str(path))
    path.chmod(SOCKET_MODE)
    listener.listen(BACKLOG)


def _make_folder(folder: Path) -> None:
    """Where systemd has not made it: open to all users, and writable by none but this one."""
    if not folder.exists():
        folder.mkdir()
        folder.chmod(FOLDER_MODE)


def _unlink_stale(path: Path) -> None:
    """Remove a socket on which nobody listens any more.

    Raises:
        OSError: somebody listens.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError(f"another agent listens at {path}")
