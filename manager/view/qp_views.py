"""What the HTTP API answers of queue pairs."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address, qp_as_json, qp_keys
from manager.placement.flows import QpName
from manager.queue_pairs.bursts import Bursts, Key
from manager.queue_pairs.counters import NS, RATE_HOLDS_S, NicTable
from manager.queue_pairs.delays import FlowDelay
from manager.queue_pairs.verbs import VerbsQp
from manager.state import FleetState
from manager.view.json_values import Json

Score = Callable[[NicTable], NDArray[np.floating[Any]]]

_BYTES = 1
_BITS = 8

SORTS: dict[str, Score] = {
    "rate": lambda table: np.nan_to_num(table.rates[:, _BYTES]),
    "bytes": lambda table: table.rows["bytes"].astype(np.float64),
    "lost": lambda table: (table.rows["psn_retransmitted"] + table.rows["psn_gaps"]).astype(np.float64),
    "naks": lambda table: table.rows["naks"].sum(axis=1).astype(np.float64),
    "marked": lambda table: (table.rows["ce_marks"] + table.rows["cnps"]).astype(np.float64),
}
"""What comes first, the largest."""


def queue_pairs(
    state: FleetState, now_s: float, *, host: str = "", sort: str = "rate", limit: int = 0
) -> Json:
    """Queue pairs by direction, with their rates and, where their packets were stamped, their delays.

    Args:
        state: What the manager knows.
        now_s: The manager's clock.
        host: Only of this host or NIC; of all where empty.
        sort: One of `SORTS`.
        limit: At most so many; 0 for all.
    """
    tables = {
        nic: table
        for nic, table in state.traffic.queue_pairs.tables.items()
        if host in ("", nic[0], nic_id(*nic))
    }
    owners = [(nic, row) for nic, table in tables.items() for row in range(len(table.rows))]
    scores = np.concatenate([SORTS[sort](table) for table in tables.values()] or [np.zeros(0)])
    order = np.argsort(-scores, kind="stable")
    shown = order[:limit] if limit > 0 else order
    rows = Rows(state, now_s)
    return {
        "qp_count": len(owners),
        "unlisted": sum(table.unlisted for table in tables.values()),
        "queue_pairs": [rows.as_json(*owners[i]) for i in shown.tolist()],
    }


class Rows:
    """Rows of the tables, as they are now."""

    def __init__(self, state: FleetState, now_s: float) -> None:
        self._traffic = state.traffic
        self._now_s = now_s
        self._now_ns = state.traffic.timeline_ns(now_s) or 0
        self._bursts: dict[tuple[str, str], dict[Key, Bursts]] = {}
        self._owners = state.members.nics_by_packed_address

    def of(self, name: QpName, direction: int) -> Json | None:
        """A queue pair by its name; None where there is none."""
        table = self._traffic.queue_pairs.tables.get((name.host, name.nic))
        if table is None:
            return None
        wanted = np.zeros(1, QP_ROW)
        try:
            wanted["addr"] = np.frombuffer(packed_address(name.dst_addr), np.uint8)
        except ValueError:
            return None
        wanted["qpn"], wanted["direction"] = name.qpn, direction
        key = qp_keys(wanted)
        i = int(np.searchsorted(table.keys, key)[0])
        if i == len(table.keys) or table.keys[i] != key[0]:
            return None
        return self.as_json((name.host, name.nic), i)

    def delay(self, name: QpName) -> FlowDelay | None:
        """The delays of a queue pair's data packets; None where none were stamped."""
        address = packed_address(name.dst_addr)
        return self._traffic.delays.delay((name.host, name.nic), address, name.qpn, self._now_ns)

    def _bursts_at(self, nic: tuple[str, str]) -> dict[Key, Bursts]:
        if nic not in self._bursts:
            self._bursts[nic] = self._traffic.bursts.of(nic)
        return self._bursts[nic]

    def as_json(self, nic: tuple[str, str], i: int) -> Json:
        """The row `i` of a NIC."""
        table = self._traffic.queue_pairs.tables[nic]
        row, silent_s = table.rows[i], self._now_s - float(table.heard_s[i])
        address = row["addr"].tobytes()
        is_sent = row["direction"] == EGRESS
        verbs = self._traffic.verbs.at(nic, address, int(row["qpn"])) if is_sent else None
        bursts = self._bursts_at(nic).get((address, int(row["qpn"]), int(row["direction"])))
        pps, bytes_per_s = table.rates[i] if silent_s < RATE_HOLDS_S else (0.0, 0.0)
        delay = None
        if is_sent:
            delay = self._traffic.delays.delay(nic, address, int(row["qpn"]), self._now_ns)
        return {
            "host": nic[0],
            "nic": nic[1],
            **qp_as_json(row),
            "peer": self._owners.get(address),
            "pps": _rate(pps),
            "bps": _rate(_BITS * bytes_per_s),
            "paced_bps": self._paced_bps(table, row, silent_s),
            "age_s": round(silent_s + int(row["age_ns"]) * NS, 3),
            "owd": None if delay is None else asdict(delay),
            "bursts": None if bursts is None else asdict(bursts),
            "actuator": verbs.actuator if verbs else "tc" if is_sent else None,
            "refused": verbs is not None and verbs.refused,
            "alternate": verbs.alternate or None if verbs else None,
            "process": None if verbs is None else _process(verbs),
        }

    @staticmethod
    def _paced_bps(table: NicTable, row: np.void, silent_s: float) -> float | None:
        """What congestion control lets it send; None where that does not hold it back."""
        if row["direction"] != EGRESS or silent_s >= RATE_HOLDS_S:
            return None
        return table.paced_bps.get((row["addr"].tobytes(), int(row["qpn"])))


def _process(verbs: VerbsQp) -> Json:
    """The program that has a queue pair, as it told itself."""
    return {
        "pid": verbs.pid,
        "name": verbs.program,
        "cgroup": verbs.cgroup,
        "job": verbs.job,
        "lqpn": verbs.lqpn,
    }


def _rate(value: float) -> float | None:
    return round(float(value), 1) if math.isfinite(value) else None
