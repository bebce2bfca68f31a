"""What agents say of each path's hops, as columns, one row a path. No I/O.

Names of nodes are numbered: NICs as `HOST/IFNAME`, hops and foreign destinations by address.
"""

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Trace, TraceReport, nic_id
from manager.fabric.routes import Pair, PathName, RowsOfPairs
from manager.tcp.names import plain_address, tcp_address

MOST_HOPS = 8
MOST_ROWS_A_HOST = 16_384
MOST_PORTS_A_PAIR = 512
FORGET_AFTER_S = 600.0
FORGET_UNORDERED_S = 60.0
"""Longer than agents take to tell again what they are to trace."""
REASONS = ("ok", "unknown_nic", "unknown_destination", "not_sane", "not_asked_for", "too_many")
UNKNOWN = -1
IPV4, IPV6 = 4, 6

Rows = NDArray[np.intp]

_FIRST_ROWS = 256
_MOST_UNUSED_NAMES = 4_096
_COLUMNS = (
    "_host",
    "_src",
    "_dst",
    "_sport",
    "_hops",
    "_length",
    "_reached",
    "_heard_s",
    "_told",
    "_pair",
    "_is_kept",
)


@dataclass(frozen=True)
class Claims:
    """Rows as they are now; arrays are not changed later.

    Attributes:
        host, src, dst: numbers of the reporting host, of the NIC at the start and of what is at the end, shape (n,).
        sport: source ports, shape (n,).
        hops: numbers of nodes, UNKNOWN for a silent one, shape (n, MOST_HOPS).
        length: how many hops there are, shape (n,).
        reached: whether the destination answered behind them, shape (n,).
        row: where each is in the table, shape (n,).
    """

    host: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    sport: NDArray[np.int32]
    hops: NDArray[np.int32]
    length: NDArray[np.int32]
    reached: NDArray[np.bool_]
    row: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.row)


class Names:
    """Numbers for names; a NIC has one for each version of IP, as switches answer by another address in each.

    Attributes:
        of: the name of each number.
        version: of IP, that of the paths of a NIC; IPV4 for whatever else there is.
    """

    def __init__(self) -> None:
        self.of: list[str] = []
        self.version: list[int] = []
        self._number: dict[tuple[str, int], int] = {}

    def number(self, name: str, version: int = IPV4) -> int:
        """The number of a name, a new one if need be."""
        number = self._number.setdefault((name, version), len(self.of))
        if number == len(self.of):
            self.of.append(name)
            self.version.append(version)
        return number

    def known(self, name: str, version: int = IPV4) -> int:
        """The number of a name, UNKNOWN if it has none."""
        return self._number.get((name, version), UNKNOWN)


def version_of(address: str) -> int:
    """The version of IP of an address, or of what stands for it in the names of TCP paths."""
    return IPV6 if ":" in plain_address(address) else IPV4


class PairNumbers:
    """Numbers for pairs; a pair keeps its own, and leaves it to another one once it is dropped.

    Attributes:
        of: the pair of each number, None for one that none has.
        number: of each pair.
    """

    def __init__(self) -> None:
        self.of: list[Pair | None] = []
        self.number: dict[Pair, int] = {}
        self._free: list[int] = []

    def add(self, pair: Pair) -> int:
        """The number of a pair, a new one if need be."""
        number = self.number.get(pair)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.of[number] = pair
        else:
            number = len(self.of)
            self.of.append(pair)
        self.number[pair] = number
        return number

    def drop(self, pair: Pair) -> None:
        """Let go of a pair."""
        number = self.number.pop(pair)
        self.of[number] = None
        self._free.append(number)


class TraceStore:
    """All paths that were traced.

    Attributes:
        names: of hosts, NICs and hops.
        pairs: rows by NIC, destination address and source port; an inner mapping is never changed, but replaced.
        reasons: traces taken and refused, by reason (`REASONS`).
        changes: counts what changed; equal counts mean equal hops.
        nics: the NIC that has each address; another mapping whenever it changes.
        ported: pairs whose ports are others; whoever has looked at them may clear it.
        touched: rows that were added, changed or dropped; whoever has looked at them may clear it. None for all.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.pairs: dict[Pair, Mapping[int, int]] = {}
        self.reasons: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.changes = 0
        self.touched: set[int] | None = set()
        self.ported: set[Pair] = set()
        self.nics: dict[str, str] = {}
        self._pairs = PairNumbers()
        self._pair = np.zeros(0, np.int32)
        self._told = np.zeros(0, np.int64)
        self._free: list[int] = []
        self._rows_of: Counter[str] = Counter()
        self._host = np.zeros(0, np.int32)
        self._src, self._dst, self._sport = (np.zeros(0, np.int32) for _ in range(3))
        self._hops = np.zeros((0, MOST_HOPS), np.int32)
        self._length = np.zeros(0, np.int32)
        self._reached = np.zeros(0, bool)
        self._heard_s = np.zeros(0)
        self._is_kept = np.zeros(0, bool)

    def __len__(self) -> int:
        return len(self._pair) - len(self._free)

    def know(self, nics: Mapping[str, str]) -> None:
        """Say which NIC has each address."""
        if nics == self.nics:
            return
        moved = {address for address, _ in nics.items() ^ self.nics.items()}
        self.nics = dict(nics)
        self.changes += 1
        end = np.full(len(self._pairs.of) + 1, UNKNOWN, np.int32)  # the last one is for rows of no pair
        for number, pair in enumerate(self._pairs.of):
            if pair is not None and pair[1] in moved:
                end[number] = self._end(pair[1])
        rows = np.flatnonzero(end[self._pair] != UNKNOWN)
        self._dst[rows] = end[self._pair[rows]]
        if self.touched is not None:
            self.touched.update(rows.tolist())

    def nic_at(self, address: str) -> str | None:
        """The NIC that has an address."""
        return self.nics.get(address)

    def hear(self, report: TraceReport, ifnames: Iterable[str], now_s: float) -> None:
        """Take in what a host says of paths from its own NICs."""
        own = set(ifnames)
        for trace in report.traces:
            told = _named(trace)
            reason = "not_asked_for" if told is None else self._take(report.host, own, told, now_s)
            self.reasons[reason] += 1

    def forget(self, paths: Iterable[PathName]) -> None:
        """Drop paths that are not traced any more: their hops would not follow the fabric."""
        for path in paths:
            row = self.pairs.get((path.src, path.dst_addr), {}).get(path.sport)
            if row is not None:
                self._drop(row)

    def expire(self, now_s: float, is_ordered: Callable[[PathName], bool] = lambda _path: True) -> None:
        """Drop paths that were not heard of for long, sooner if they are not to be traced.

        That is asked once for as long as nothing is heard of a path: those that are withdrawn are forgotten.
        """
        silent_s = now_s - self._heard_s
        old = (self._pair >= 0) & (silent_s > FORGET_UNORDERED_S)
        for row in np.flatnonzero(old & (~self._is_kept | (silent_s > FORGET_AFTER_S))).tolist():
            if silent_s[row] > FORGET_AFTER_S or not is_ordered(self.path_name(row)):
                self._drop(row)
            else:
                self._is_kept[row] = True

    def path_name(self, row: int) -> PathName:
        """The name of a path."""
        pair = self._pairs.of[self._pair[row]]
        assert pair is not None
        src, dst_addr = pair
        return PathName(src, dst_addr, int(self._sport[row]))

    @property
    def capacity(self) -> int:
        """Above every row's number."""
        return len(self._pair)

    def rows_of_pairs(self) -> RowsOfPairs:
        """Which pair each row is of, as it is now."""
        return RowsOfPairs(dict(self._pairs.number), list(self._pairs.of), self._pair.copy())

    def claims(self, rows: Rows | None = None) -> Claims:
        """Rows, all that there are if none are given."""
        if rows is None:
            self._tidy_names()
            rows = np.flatnonzero(self._pair >= 0)
        return Claims(
            host=self._host[rows],
            src=self._src[rows],
            dst=self._dst[rows],
            sport=self._sport[rows],
            hops=self._hops[rows],
            length=self._length[rows],
            reached=self._reached[rows],
            row=rows,
        )

    def used(self, rows: Rows) -> Rows:
        """Those of some rows that there are."""
        return rows[self._pair[rows] >= 0]

    def host_of(self, rows: Rows) -> NDArray[np.int32]:
        """The number of the host that told of each row."""
        return self._host[rows]

    def _take(self, host: str, ifnames: set[str], trace: Trace, now_s: float) -> str:
        if trace.nic not in ifnames:
            return "unknown_nic"
        owner = self.nics.get(trace.dst_addr)
        if owner is None or owner == nic_id(host, trace.nic):
            return "unknown_destination"
        pair = nic_id(host, trace.nic), trace.dst_addr
        row = self.pairs.get(pair, {}).get(trace.sport)
        told = hash((*trace.hops, trace.reached))
        if row is not None and self._told[row] == told:
            self._heard_s[row], self._is_kept[row] = now_s, False
            return "ok"
        hops = _usual_hops(trace.hops, version_of(trace.dst_addr))
        if hops is None or len(set(hops) - {None}) + hops.count(None) < len(hops):
            return "not_sane"
        if row is None:
            if len(self.pairs.get(pair, ())) >= MOST_PORTS_A_PAIR or self._rows_of[host] >= MOST_ROWS_A_HOST:
                return "too_many"
            row = self._add(host, pair, trace.sport)
        self._hops[row] = UNKNOWN
        self._hops[row, : len(hops)] = [UNKNOWN if hop is None else self.names.number(hop) for hop in hops]
        self._length[row], self._reached[row], self._heard_s[row] = len(hops), trace.reached, now_s
        self._told[row], self._is_kept[row] = told, False
        self._touch(row)
        return "ok"

    def _add(self, host: str, pair: Pair, sport: int) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._pair[row] = self._pairs.add(pair)
        self.pairs[pair] = {**self.pairs.get(pair, {}), sport: row}
        self.ported.add(pair)
        self._rows_of[host] += 1
        self._host[row] = self.names.number(host)
        self._src[row] = self.names.number(pair[0], version_of(pair[1]))
        self._dst[row], self._sport[row] = self._end(pair[1]), sport
        return row

    def _drop(self, row: int) -> None:
        src, dst_addr, sport = self.path_name(row)
        left = {port: other for port, other in self.pairs[src, dst_addr].items() if port != sport}
        if left:
            self.pairs[src, dst_addr] = left
        else:
            del self.pairs[src, dst_addr]
            self._pairs.drop((src, dst_addr))
        self.ported.add((src, dst_addr))
        self._rows_of[src.rpartition("/")[0]] -= 1
        self._pair[row] = UNKNOWN
        self._free.append(row)
        self._touch(row)

    def _touch(self, row: int) -> None:
        self.changes += 1
        if self.touched is not None:
            self.touched.add(row)

    def _end(self, address: str) -> int:
        return self.names.number(self.nics.get(address, address), version_of(address))

    def _grow(self) -> None:
        old = len(self._pair)
        more = max(_FIRST_ROWS, old)
        for name in _COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros((more, *column.shape[1:]), column.dtype)]))
        self._pair[old:] = UNKNOWN
        self._free += range(old + more - 1, old - 1, -1)

    def _tidy_names(self) -> None:
        """Forget names that no row has any more, once there are many."""
        is_used = np.zeros(len(self.names.of) + 1, bool)  # the last one is for UNKNOWN
        for column in (self._host, self._src, self._dst, self._hops):
            is_used[column] = True
        used = np.flatnonzero(is_used[:-1])
        if len(self.names.of) <= 2 * len(used) + _MOST_UNUSED_NAMES:
            return
        old, self.names = self.names, Names()
        new = np.full(len(is_used), UNKNOWN, np.int32)
        new[used] = [self.names.number(old.of[i], old.version[i]) for i in used.tolist()]
        self._host, self._src, self._dst, self._hops = (
            new[column] for column in (self._host, self._src, self._dst, self._hops)
        )
        self.touched = None


def _named(trace: Trace) -> Trace | None:
    """A trace as routes name its path; None of a protocol of which nobody asks."""
    if not trace.protocol:
        return trace
    if trace.protocol != socket.IPPROTO_TCP:
        return None
    return msgspec.structs.replace(trace, dst_addr=tcp_address(trace.dst_addr), protocol=0)


def _usual_hops(hops: list[str | None], version: int) -> list[str | None] | None:
    """Hops as addresses are usually written; None where there are too many, or one is no address of this version of IP."""
    if len(hops) > MOST_HOPS:
        return None
    try:
        usual = [None if hop is None else _usual(hop) for hop in hops]
    except ValueError:
        return None
    return None if any(hop is not None and version_of(hop) != version for hop in usual) else usual


@lru_cache(65_536)
def _usual(address: str) -> str:
    return str(ip_address(address))
