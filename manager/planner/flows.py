"""The queue pairs that send now, as the planner needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, QP_ROW, shown_address, taken
from manager.jobs.flows import Flow
from manager.placement.flows import ACTIVE_S, Ends, Flows, Indices, QpName
from manager.queue_pairs.counters import RATE_HOLDS_S, NicTable

ACKNOWLEDGEMENT_BYTES = 128
"""Packets that are smaller in the mean answer others' requests, or are messages too small to fill a link."""

_BYTES_RATE = 1
"""Which of a table's rates is of bytes."""


NOTHING: Mapping[Flow, float] = {}


@dataclass
class _Named:
    """Those of a table's rows that are sent, in their order: of all keys that the table had."""

    keys: NDArray[np.bytes_]
    names: list[QpName]
    dst: list[str]


class FlowReader:
    """Reads tables again and again; what tells queue pairs apart it makes anew only where a table has others."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], _Named] = {}
        self._nics: Mapping[str, str] = {}

    def read(
        self,
        tables: Mapping[tuple[str, str], NicTable],
        nics: Mapping[str, str],
        now_s: float,
        pauses_s: Mapping[Flow, float] = NOTHING,
    ) -> Flows:
        """Those that an agent reported of within `ACTIVE_S` of its last report, however long ago that was.

        Args:
            tables: of each NIC.
            nics: the NIC that has each address; another mapping where it changes.
            now_s: the manager's clock.
            pauses_s: for how long those may be silent that send again afterwards.
        """
        tables = {nic: table for nic, table in tables.items() if len(table.rows)}
        if not tables:
            return Flows.none()
        named = self._name(tables, nics)
        rows, columns = _sent(list(tables.values()), now_s)
        silent_s, rate_bps, source = columns
        names = list(chain.from_iterable(each.names for each in named))
        dst = list(chain.from_iterable(each.dst for each in named))
        active = (silent_s < ACTIVE_S) | _pauses(names, dst, silent_s, pauses_s)
        active &= rows["sport"] > 0
        rows, dst = rows[active], list(compress(dst, active))
        return Flows(
            names=list(compress(names, active)),
            dst=dst,
            sport=rows["sport"].astype(np.int64),
            rate_bps=rate_bps[active],
            small=rows["bytes"] / np.maximum(rows["packets"], 1) < ACKNOWLEDGEMENT_BYTES,
            known_ends=_ends([nic_id(*nic) for nic in tables], source[active].astype(np.intp), dst),
        )

    def _name(self, tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str]) -> list[_Named]:
        if nics is not self._nics:
            self._nics = nics
            for named in self._named.values():
                named.dst = [nics.get(name.dst_addr, name.dst_addr) for name in named.names]
        shown: dict[bytes, str] = {}
        kept: dict[tuple[str, str], _Named] = {}
        for nic, table in tables.items():
            named_before = self._named.get(nic)
            if named_before is None or named_before.keys is not table.keys:
                named_before = _name(nic, table, nics, shown)
            kept[nic] = named_before
        self._named = kept
        return list(kept.values())


def _pauses(
    names: Sequence[QpName],
    dst: Sequence[str],
    silent_s: NDArray[np.float64],
    pauses_s: Mapping[Flow, float],
) -> NDArray[np.bool_]:
    """Those that are silent for a while and send again, shape (n,)."""
    found = np.zeros(len(names), bool)
    silent = np.flatnonzero((silent_s >= ACTIVE_S) & (silent_s < max(pauses_s.values(), default=0.0)))
    for i in silent.tolist():
        found[i] = silent_s[i] < pauses_s.get(Flow(names[i].src, dst[i], names[i].qpn), 0.0)
    return found


def sending(tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str], now_s: float) -> Flows:
    """What a `FlowReader` reads, once."""
    return FlowReader().read(tables, nics, now_s)


def _name(nic: tuple[str, str], table: NicTable, nics: Mapping[str, str], shown: dict[bytes, str]) -> _Named:
    """Name a table's rows; `shown` holds addresses as people write them, and is added to."""
    rows = taken(table.rows, table.rows["direction"] == EGRESS)
    told = np.ascontiguousarray(rows["addr"]).view("V16").ravel().tolist()
    for packed in set(told) - shown.keys():
        shown[packed] = shown_address(packed)
    names = [QpName(*nic, shown[packed], qpn) for packed, qpn in zip(told, rows["qpn"].tolist(), strict=True)]
    return _Named(table.keys, names, [nics.get(name.dst_addr, name.dst_addr) for name in names])


def _sent(tables: Sequence[NicTable], now_s: float) -> tuple[NDArray[np.void], NDArray[np.float64]]:
    """The rows of all tables that are sent, and of each: its silence in s, rate in bit/s, table; shapes (n,), (3, n)."""
    counts = [len(table.rows) for table in tables]
    told = [(table.latest_s, table.holds_s, i) for i, table in enumerate(tables)]
    latest_s, holds_s, source = np.repeat(np.array(told).T, counts, axis=1)
    rows = np.concatenate([table.rows.view(np.uint8) for table in tables]).view(QP_ROW)
    heard_s = np.concatenate([table.heard_s for table in tables])
    rates = np.concatenate([table.rates for table in tables])[:, _BYTES_RATE]
    sends = (heard_s > latest_s - holds_s) & (now_s - heard_s < RATE_HOLDS_S)
    columns = np.stack([latest_s - heard_s, np.where(sends, rates * 8, np.nan), source])
    sent = rows["direction"] == EGRESS
    return rows[sent], columns[:, sent]


def _ends(src: list[str], source: Indices, dst: list[str]) -> Ends:
    """The ends of flows, of which `source` tells the place of their NIC in `src`."""
    numbers = {nic: i for i, nic in enumerate(src)}
    for nic in dict.fromkeys(dst):
        numbers.setdefault(nic, len(numbers))
    there = np.fromiter(map(numbers.__getitem__, dst), np.intp, len(dst))
    return Ends(list(numbers), np.stack([source, there]))
