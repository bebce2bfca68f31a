"""What the HTTP API answers of TCP connections."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.addresses import bytes_address
from cwdp.shared.bus.messages import nic_id
from cwdp.shared.connections import STATES, TCP_COUNTERS
from manager.state import FleetState
from manager.tcp.connections import RATE_HOLDS_S, RATES, NicTable
from manager.view.json_values import Json

Score = Callable[[NicTable], NDArray[np.floating[Any]]]

SORTS: dict[str, Score] = {
    "rate": lambda table: np.nan_to_num(table.rates).sum(axis=1),
    "bytes": lambda table: (table.rows["bytes_acked"] + table.rows["bytes_received"]).astype(np.float64),
    "rtt": lambda table: table.rows["rtt_us"].astype(np.float64),
    "resent": lambda table: table.rows["bytes_retransmitted"].astype(np.float64),
}
"""What comes first, the largest."""

_NUMBERS = ("rtt_us", "min_rtt_us", "cwnd", "mss", "retransmissions", *TCP_COUNTERS)
_BITS = 8


def connections(
    state: FleetState, now_s: float, *, host: str = "", service: str = "", sort: str = "rate", limit: int = 0
) -> Json:
    """TCP connections by the end that tells of them.

    Args:
        state: What the manager knows.
        now_s: The manager's clock.
        host: Only of this host or NIC; of all where empty.
        service: Only of this one; of all where empty.
        sort: One of `SORTS`.
        limit: At most so many; 0 for all.
    """
    store = state.traffic.tcp
    tables = {nic: table for nic, table in store.tables.items() if host in ("", nic[0], nic_id(*nic))}
    found = [
        (float(score), nic, row)
        for nic, table in tables.items()
        for row, score in enumerate(SORTS[sort](table))
        if service in ("", table.service(row))
    ]
    found.sort(key=lambda each: -each[0])
    both = {nic: store.both_ends(table) for nic, table in tables.items()}
    shown = found[:limit] if limit > 0 else found
    return {
        "connection_count": len(found),
        "unlisted": sum(table.unlisted for table in tables.values()),
        "connections": [
            _as_json(state, nic, tables[nic], row, now_s, both_ends=bool(both[nic][row]))
            for _, nic, row in shown
        ],
    }


def _as_json(
    state: FleetState, nic: tuple[str, str], table: NicTable, i: int, now_s: float, *, both_ends: bool
) -> Json:
    row, silent_s = table.rows[i], now_s - float(table.heard_s[i])
    local, remote = (str(bytes_address(row[f"{end}_addr"].tobytes())) for end in ("local", "remote"))
    pid = int(row["pid"])
    program, cgroup = table.programs.get(pid, ("", ""))
    rates = table.rates[i] if silent_s < RATE_HOLDS_S else np.zeros(len(RATES))
    return {
        "host": nic[0],
        "nic": nic[1],
        "service": table.service(i),
        "local_addr": local,
        "local_port": int(row["local_port"]),
        "remote_addr": remote,
        "remote_port": int(row["remote_port"]),
        "peer": state.members.nics_by_address.get(remote),
        "both_ends": both_ends,
        "state": STATES[row["state"]],
        "process": {"pid": pid, "name": program, "cgroup": cgroup} if pid else None,
        "bps": _rate(_BITS * rates[0]),
        "received_bps": _rate(_BITS * rates[1]),
        "delivery_bps": _BITS * int(row["delivery_rate"]),
        **{name: int(row[name]) for name in _NUMBERS},
        "age_s": round(silent_s, 3),
    }


def _rate(value: float) -> float | None:
    return round(float(value), 1) if math.isfinite(value) else None
