"""Which links each path crosses, as an immutable value that planners and analysts share. No I/O.

A path is named by the NIC that it starts at, the destination address and the UDP source port; a link by the nodes
at its two ends, in the direction of travel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class PathName(NamedTuple):
    """A path; `src` is a NIC as `HOST/IFNAME`."""

    src: str
    dst_addr: str
    sport: int


class DirectedLink(NamedTuple):
    """A link in one direction; a node is a switch's address, or a NIC as `HOST/IFNAME`."""

    a: str
    b: str


@dataclass(frozen=True)
class Routes:
    """All known paths.

    Attributes:
        version: another one whenever a path's links are others.
        links: every link of every path.
        paths: the numbers of each path's links in `links`, in the order of travel.
    """

    version: int = 0
    links: tuple[DirectedLink, ...] = ()
    paths: Mapping[PathName, tuple[int, ...]] = field(default_factory=dict)

    def ports(self, src: str, dst_addr: str) -> dict[int, tuple[int, ...]]:
        """The links of each known path from a NIC to an address, by source port."""
        return self._by_pair.get((src, dst_addr), {})

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], dict[int, tuple[int, ...]]]:
        pairs: dict[tuple[str, str], dict[int, tuple[int, ...]]] = {}
        for name, links in self.paths.items():
            pairs.setdefault((name.src, name.dst_addr), {})[name.sport] = links
        return pairs
