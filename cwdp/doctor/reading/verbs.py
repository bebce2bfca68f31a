"""Facts of the verbs shim: its library, its socket, and the libraries below it."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cwdp.agent.config import VerbsConfig
from cwdp.doctor.facts import Verbs
from cwdp.doctor.reading.programs import read_door
from cwdp.rdma.libraries import VERBS

MOVES_MLX5 = "mlx5dv_modify_qp_udp_sport"

_Load = Callable[[str], Any]


def read_verbs(config: VerbsConfig, load: _Load = ctypes.CDLL) -> Verbs:
    """Look at what programs would find."""
    door = read_door(VERBS, config.socket)
    mlx5 = _loaded("libmlx5.so.1", load)
    return Verbs(
        library=door.library,
        socket=door.socket,
        is_exposed=door.is_exposed,
        has_libibverbs=_loaded("libibverbs.so.1", load) is not None,
        libmlx5=None if mlx5 is None else _version("libmlx5.so.1"),
        moves_mlx5=hasattr(mlx5, MOVES_MLX5),
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
