"""What a tree says of itself, in its map `meta`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import opened

NAME = "meta"

LAYOUTS_BEFORE = (5, 6)
"""Their maps can be taken over; they have no bursts, the first one no TCP, and fewer counters."""


def upgradable(record: NDArray[np.void]) -> bool:
    """Whether this build's programs can take over the maps of a tree that has this record."""
    return int(record["abi"]) in (*LAYOUTS_BEFORE, abi.ABI)


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
