"""Numbers of many links: as leaders tell them to each other, and divided among pods. Pure functions over arrays.

Links are others far more seldom than their numbers, so what depends on the links alone is worked out once for as long as
they are the same object.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cwdp.shared.bus.packing import packed, row_bytes, rows_of, unpacked
from manager.fabric.routes import DirectedLink
from manager.pods.grants import grants
from manager.pods.link_names import links_of, named

MOST_BPS = 1e15

WANT_ROW = np.dtype([("a", "<u4"), ("b", "<u4"), ("wanted_bps", "<f8"), ("capacity_bps", "<f8")])
"""A link by the places of its ends in the list of nodes; its capacity is 0 where it is not known."""

GRANT_ROW = np.dtype([("a", "<u4"), ("b", "<u4"), ("granted_bps", "<f8")])

_ENDS = ["a", "b"]

Links = tuple[DirectedLink, ...]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LinkRates:
    """Rates of links, each link once.

    Attributes:
        links: shape (links,); the same object while they are the same.
        bps: shape (links, rates): what is granted of each, or what is wanted and what it can carry, 0 where that is not known.
    """

    links: Links
    bps: Floats

    def by_link(self, rate: int) -> dict[DirectedLink, float]:
        """One of the rates, by link."""
        return dict(zip(self.links, self.bps[:, rate].tolist(), strict=True))


class LinkRows(Struct, frozen=True, kw_only=True):
    """What a pod's leader says of links: WANT_ROWs to the root, GRANT_ROWs from it.

    Attributes:
        pod: whose leader says so.
        epoch, seq: of that leader, and of its messages; later ones are higher.
        nodes, rows: packed.
    """

    pod: str
    epoch: int
    seq: int
    nodes: bytes
    rows: bytes


class Namer:
    """Makes messages for one hearer: names are packed anew when links are others."""

    def __init__(self) -> None:
        self._links: Links | None = None
        self._nodes, self._ends = b"", np.zeros((0, 2), np.uint32)

    def link_rows(self, pod: str, epoch: int, seq: int, told: LinkRates) -> LinkRows:
        """A message; see `LinkRows`.

        Raises:
            TooLargeError: there are more links than a message holds.
        """
        if told.links is not self._links:
            nodes, ends = named(told.links)
            self._links, self._nodes = told.links, nodes
            self._ends = np.array(ends, np.uint32).reshape(-1, 2)
        dtype = WANT_ROW if told.bps.shape[1] > 1 else GRANT_ROW
        rows = np.empty(len(told.links), dtype)
        for name, column in zip(dtype.names or (), (*self._ends.T, *told.bps.T), strict=True):
            rows[name] = column
        return LinkRows(pod=pod, epoch=epoch, seq=seq, nodes=self._nodes, rows=packed(row_bytes(rows)))


@dataclass(frozen=True, eq=False)
class Told:
    """What a message says, and of which links by which bytes."""

    nodes: bytes
    ends: NDArray[np.void]
    rates: LinkRates


def told_by(message: LinkRows, dtype: np.dtype[np.void], before: Told | None = None) -> Told:
    """What a message says.

    Args:
        message: which.
        dtype: of its rows.
        before: an earlier one of who says so; links that are the same are the same object.

    Raises:
        ValueError, msgspec.DecodeError: it cannot be.
    """
    rows = rows_of(unpacked(message.rows), dtype)
    bps = np.stack([rows[name] for name in (dtype.names or ())[2:]], axis=1)
    if not ((bps >= 0) & (bps <= MOST_BPS)).all():
        raise ValueError("rates that cannot be")
    ends = np.ascontiguousarray(rows[_ENDS])
    if before is not None and before.nodes == message.nodes and np.array_equal(before.ends, ends):
        return Told(before.nodes, before.ends, LinkRates(before.rates.links, bps))
    links = tuple(links_of(message.nodes, rows)[1])
    if len(set(links)) < len(links):
        raise ValueError("a link is told of twice")
    return Told(message.nodes, ends, LinkRates(links, bps))


class Divider:
    """Divides links among the pods that tell of them."""

    def __init__(self) -> None:
        self._of: tuple[Links, ...] = ()
        self._links: Links = ()
        self._places: list[Indices] = []
        self._chosen = np.zeros(0, bool)
        self._shared: Links = ()

    def divided(self, wants: Mapping[str, LinkRates], turn: int) -> dict[str, LinkRates]:
        """What each pod is granted of the links that others tell of as well, of a capacity that some pod knows.

        A link can carry what the pod says that saw it carry most: one that others load as well was seen full with a part.

        Args:
            wants: what each pod wants, and what links can carry.
            turn: see `grants`.
        """
        self._follow(tuple(each.links for each in wants.values()))
        demand, known = np.zeros((2, len(wants), len(self._links)))
        for pod, (place, want) in enumerate(zip(self._places, wants.values(), strict=True)):
            is_shared = place >= 0
            demand[pod, place[is_shared]], known[pod, place[is_shared]] = want.bps[is_shared].T
        capacity = known.max(axis=0, initial=0.0)
        chosen = capacity > 0
        if not np.array_equal(chosen, self._chosen):
            self._chosen = chosen
            self._shared = tuple(self._links[i] for i in np.flatnonzero(chosen).tolist())
        if not self._shared:
            return {pod: LinkRates((), np.zeros((0, 1))) for pod in wants}
        granted = grants(capacity[chosen], demand[:, chosen], turn)
        return {pod: LinkRates(self._shared, row[:, None]) for pod, row in zip(wants, granted, strict=True)}

    def _follow(self, of: tuple[Links, ...]) -> None:
        """See which links several pods tell of, and where each pod's are among these, -1 for the others."""
        if len(of) == len(self._of) and all(a is b for a, b in zip(of, self._of, strict=True)):
            return
        users = Counter(link for links in of for link in links)
        self._of, self._links = of, tuple(sorted(link for link, count in users.items() if count > 1))
        number = {link: i for i, link in enumerate(self._links)}
        self._places = [np.array([number.get(link, -1) for link in links], np.intp) for links in of]
        self._chosen, self._shared = np.zeros(0, bool), ()
