"""What a tree says of itself, in its map `meta`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import opened

NAME = "meta"


def read(tree: Path) -> NDArray[np.void]:
    """The record of a tree, dtype `abi.META`; of one of another layout only its first field, the number, says much.

    Raises:
        OSError: the tree is not whole.
    """
    with opened(tree / NAME) as fd:
        raw = libbpf.map_lookup(fd, 0, max(abi.META.itemsize, libbpf.map_value_bytes(fd)))
    record: NDArray[np.void] = np.frombuffer(raw, dtype=abi.META, count=1).copy()
    return record


def write(tree: Path, record: NDArray[np.void]) -> None:
    """Have a tree say so.

    Raises:
        OSError: the tree is not whole.
    """
    with opened(tree / NAME) as fd:
        libbpf.map_update(fd, 0, record.tobytes())
