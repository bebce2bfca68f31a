"""Facts of a library that programs load, and of the socket by which they reach the agent."""

import os
import stat
from pathlib import Path
from typing import Literal

from cwdp.doctor.facts import Door
from cwdp.rdma.libraries import library


def read_door(name: str, socket: str) -> Door:
    """Look at what programs would find.

    Args:
        name: of the library's file.
        socket: its path.
    """
    found, path = library(name), Path(socket)
    return Door(
        library=None if found is None else str(found),
        socket=_socket(path),
        is_exposed=_is_exposed(path.parent),
    )


def _socket(path: Path) -> Literal["open", "closed", "missing"]:
    try:
        if not path.is_socket():
            return "missing"
        is_passable = path.parent.stat().st_mode & stat.S_IXOTH
        return "open" if is_passable and path.stat().st_mode & stat.S_IWOTH else "closed"
    except OSError:
        return "missing"


def _is_exposed(folder: Path) -> bool:
    """Whether somebody else may remove what is in a folder: one of another user's, or in which all may write."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid not in (0, os.geteuid()) or bool(
        found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    )
