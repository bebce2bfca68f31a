"""Which partitions the ports of hosts are in, by their tables of P_Keys."""

from collections.abc import Mapping

from cwdp.ib.attributes import ask_partitions, read_partitions
from cwdp.ib.sweep import Asks, End, Fabric

MOST_BLOCKS = 8
"""Of 32 P_Keys: what is behind them is not read."""


def read_keys(asker: Asks, fabric: Fabric) -> Mapping[End, tuple[int, ...]]:
    """The P_Keys of each host's port that tells them, in order.

    Raises:
        RdmaError: the port cannot send or receive.
    """
    paths = _paths(fabric)
    found: dict[End, tuple[int, ...]] = {}
    for block in range(MOST_BLOCKS):
        told = asker.ask([ask_partitions(path, block) for path in paths.values()])
        full = {}
        for (end, path), data in zip(paths.items(), told, strict=True):
            if data is None:
                continue
            keys = read_partitions(data)
            found[end] = (*found.get(end, ()), *keys[keys != 0].tolist())
            if keys[-1]:
                full[end] = path
        paths = full
        if not paths:
            break
    return found


def _paths(fabric: Fabric) -> dict[End, tuple[int, ...]]:
    """A direct route to each host's port that is linked: a table is that of the port by which it is asked for."""
    found = {}
    for end, far in fabric.links.items():
        node, beside = fabric.nodes[end.guid], fabric.nodes[far.guid]
        if not node.is_switch:
            found[end] = (*beside.path, far.port) if beside.is_switch else node.path
    return found
