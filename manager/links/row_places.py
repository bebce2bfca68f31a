"""Where the ways of probed rows are among the known paths; of what has not changed that is looked up only once. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import NOWHERE, PackedPaths, Pair, PathName
from manager.paths.windows import RowName

_NO_PATHS: Mapping[int, int] = {}


@dataclass(frozen=True)
class Nics:
    """Who has which address.

    Attributes:
        owner: the NIC of each address, as `HOST/IFNAME`.
        addresses: each NIC's, IPv4 or IPv6.
    """

    owner: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def reply(self, name: RowName) -> PathName | None:
        """The path that replies to a row's probes take; None where the ends are not known."""
        dst = self.owner.get(name.dst_addr)
        v6 = ":" in name.dst_addr
        mine = [address for address in self.addresses.get(name.src, ()) if (":" in address) == v6]
        return PathName(dst, mine[0], name.reply_sport) if dst is not None and mine else None


@dataclass(frozen=True)
class Places:
    """Which path each row's probes take.

    Attributes:
        names, nics: what was looked up.
        paths: where.
        path: the rows in `paths` of the ways there and back, NOWHERE where one is not known, shape (2, rows).
        pair: the numbers in `numbers` of their NICs and addresses, NOWHERE for none, shape (2, rows).
        numbers: of pairs of a NIC and an address.
    """

    names: Sequence[RowName | None]
    nics: Nics
    paths: PackedPaths
    path: NDArray[np.int32]
    pair: NDArray[np.int32]
    numbers: Mapping[Pair, int]


def find_places(
    names: Sequence[RowName | None], paths: PackedPaths, nics: Nics, before: Places | None = None
) -> Places:
    """Look rows up: all, or those that may be elsewhere than before.

    A row may be elsewhere if its name is another one, or its pair has other ports, or if NICs have other addresses.
    """
    rows = len(names)
    path, pair = (np.full((2, rows), NOWHERE, np.int32) for _ in range(2))
    if before is None or before.nics != nics:
        before, stale = None, np.arange(rows)
    else:
        kept = min(rows, len(before.names))
        path[:, :kept], pair[:, :kept] = before.path[:, :kept], before.pair[:, :kept]
        stale = np.flatnonzero(_renamed(names, before) | _ported_anew(pair, paths, before))
    numbers = {} if before is None else dict(before.numbers)
    for row in stale.tolist():
        name = names[row]
        ways = (None, None) if name is None else (PathName(*name[:3]), nics.reply(name))
        for way, wanted in enumerate(ways):
            path[way, row] = pair[way, row] = NOWHERE
            if wanted is not None:
                mine = wanted.src, wanted.dst_addr
                pair[way, row] = numbers.setdefault(mine, len(numbers))
                path[way, row] = paths.pairs.get(mine, _NO_PATHS).get(wanted.sport, NOWHERE)
    if len(numbers) > 2 * len(np.unique(pair)) + 1:
        numbers = _renumber(pair, numbers)
    return Places(names, nics, paths, path, pair, numbers)


def _renamed(names: Sequence[RowName | None], before: Places) -> NDArray[np.bool_]:
    """Rows that are not what they were, shape (rows,)."""
    renamed = np.ones(len(names), bool)
    kept = [now is not then for now, then in zip(names, before.names, strict=False)]
    renamed[: len(kept)] = kept
    return renamed


def _ported_anew(pair: NDArray[np.int32], paths: PackedPaths, before: Places) -> NDArray[np.bool_]:
    """Rows of pairs whose ports were others before, one way or the other, shape (rows,)."""
    is_other = np.zeros(len(before.numbers) + 1, bool)  # the last one is for NOWHERE
    old, new = before.paths.pairs, paths.pairs
    if old is not new:
        is_other[:-1] = [old.get(each) is not new.get(each) for each in before.numbers]
    return np.asarray(is_other[pair].any(axis=0), bool)


def _renumber(pair: NDArray[np.int32], numbers: Mapping[Pair, int]) -> dict[Pair, int]:
    """Number only the pairs that some row is of; `pair` is changed to these numbers."""
    used = np.unique(pair[pair >= 0])
    new = np.full(len(numbers) + 1, NOWHERE, np.int32)
    new[used] = np.arange(len(used))
    pair[:] = new[pair]
    names = list(numbers)
    return {names[number]: i for i, number in enumerate(used.tolist())}
