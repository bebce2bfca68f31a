"""The queue pairs that send now, as the planner needs them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, shown_address
from manager.queue_pairs.counters import NicTable

ACTIVE_S = 1.5
ACKNOWLEDGEMENT_BYTES = 128
"""Packets that are smaller in the mean answer others' requests, or are messages too small to fill a link."""


class QpName(NamedTuple):
    """A queue pair by the NIC that it leaves by and its far end."""

    host: str
    nic: str
    dst_addr: str
    qpn: int

    @property
    def src(self) -> str:
        """The NIC, by its name in the fabric."""
        return nic_id(self.host, self.nic)


@dataclass(frozen=True, eq=False)
class Flows:
    """Queue pairs that have sent of late, as far as is known; arrays of shape (n,).

    Attributes:
        names: of each.
        dst: the NIC at the far end, or its address where nobody is known to have it.
        sport: the source port that its packets left with last.
        rate_bps: between the last two reports, NaN where there was one only, or none just now.
        small: whether its packets are small ones, such as acknowledgements.
    """

    names: list[QpName]
    dst: list[str]
    sport: NDArray[np.int64]
    rate_bps: NDArray[np.float64]
    small: NDArray[np.bool_]


def sending(tables: Mapping[tuple[str, str], NicTable], nics: Mapping[str, str], now_s: float) -> Flows:
    """Those that an agent reported of within `ACTIVE_S` of its last report, however long ago that was."""
    names: list[QpName] = []
    dst: list[str] = []
    columns: list[NDArray[np.float64]] = []
    shown: dict[bytes, str] = {}
    for (host, nic), table in tables.items():
        if not len(table.rows):
            continue
        chosen = _active(table)
        for addr, qpn in zip(table.rows["addr"][chosen], table.rows["qpn"][chosen].tolist(), strict=True):
            packed = addr.tobytes()
            address = shown.get(packed) or shown.setdefault(packed, shown_address(packed))
            names.append(QpName(host, nic, address, qpn))
            dst.append(nics.get(address, address))
        columns.append(_columns(table, chosen, now_s))
    sport, rate_bps, mean_bytes = np.concatenate(columns, axis=1) if columns else np.zeros((3, 0))
    return Flows(names, dst, sport.astype(np.int64), rate_bps, mean_bytes < ACKNOWLEDGEMENT_BYTES)


def _active(table: NicTable) -> NDArray[np.intp]:
    rows, silent_s = table.rows, table.latest_s - table.heard_s
    return np.flatnonzero((rows["direction"] == EGRESS) & (silent_s < ACTIVE_S) & (rows["sport"] > 0))


def _columns(table: NicTable, chosen: NDArray[np.intp], now_s: float) -> NDArray[np.float64]:
    """Source port, rate in bit/s and mean size of a packet in bytes, shape (3, n)."""
    rows = table.rows[chosen]
    mean_bytes = rows["bytes"] / np.maximum(rows["packets"], 1)
    rate_bps = np.where(table.sends(now_s), table.rates[:, 1] * 8, np.nan)[chosen]
    return np.stack([rows["sport"].astype(np.float64), rate_bps, mean_bytes])
