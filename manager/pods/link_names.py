"""Links as leaders name them to each other: each node once, and links by the places of their ends. Pure functions."""

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.packing import packed, unpacked
from manager.fabric.routes import DirectedLink


def named(links: Iterable[DirectedLink]) -> tuple[bytes, list[tuple[int, int]]]:
    """The packed names of what links lie between, and the places of each link's ends there.

    Raises:
        TooLargeError: there are more nodes than a message holds.
    """
    links = list(links)
    nodes = {node: i for i, node in enumerate(dict.fromkeys(end for link in links for end in link))}
    return packed(msgspec.msgpack.encode(list(nodes))), [(nodes[a], nodes[b]) for a, b in links]


def links_of(nodes: bytes, rows: NDArray[np.void]) -> tuple[list[str], list[DirectedLink]]:
    """The names, and the links of rows whose fields `a` and `b` are the places of their ends.

    Raises:
        ValueError, msgspec.DecodeError: these are no names, or a link ends at none of them.
    """
    names = msgspec.msgpack.decode(unpacked(nodes), type=list[str])
    if len(rows) and max(rows["a"].max(), rows["b"].max()) >= len(names):
        raise ValueError("links between unknown nodes")
    ends = zip(rows["a"].tolist(), rows["b"].tolist(), strict=True)
    return names, [DirectedLink(names[a], names[b]) for a, b in ends]
