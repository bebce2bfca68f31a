"""Facts of the verbs shim: its library, its socket, and the libraries below it."""

import ctypes
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from cwdp.agent.config import VerbsConfig
from cwdp.doctor.facts import Verbs
from cwdp.rdma import shimlib

MOVES_MLX5 = "mlx5dv_modify_qp_udp_sport"

_Load = Callable[[str], Any]


def read_verbs(config: VerbsConfig, load: _Load = ctypes.CDLL) -> Verbs:
    """Look at what programs would find."""
    library, path = shimlib.library(), Path(config.socket)
    mlx5 = _loaded("libmlx5.so.1", load)
    return Verbs(
        library=None if library is None else str(library),
        socket=_socket(path),
        is_exposed=_is_exposed(path.parent),
        has_libibverbs=_loaded("libibverbs.so.1", load) is not None,
        libmlx5=None if mlx5 is None else _version("libmlx5.so.1"),
        moves_mlx5=hasattr(mlx5, MOVES_MLX5),
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


def _loaded(name: str, load: _Load) -> Any | None:
    try:
        return load(name)
    except OSError:
        return None


def _version(name: str, maps: Path = Path("/proc/self/maps")) -> str:
    """By the name of the file that was loaded, such as libmlx5.so.1.24.44.0."""
    try:
        paths = {line.split()[-1] for line in maps.read_text().splitlines() if "/" in line}
    except OSError:
        paths = set()
    files = [Path(path).name for path in paths if Path(path).name.startswith(name)]
    return files[0].removeprefix("libmlx5.so.") if files else "1"
