"""What the HTTP API answers of TCP connections."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.addresses import bytes_address
from cwdp.shared.bus.messages import nic_id
from cwdp.shared.connections import STATES, TCP_COUNTERS
from cwdp.shared.tcp import SteeredTcp, SteerTcp
from manager.overrides.tcp import EndKey
from manager.state import FleetState
from manager.tcp.connections import RATE_HOLDS_S, RATES, NicName, NicTable
from manager.tcp.names import Connection
from manager.tcp.steered import standing
from manager.view.fabric_views import nodes_of
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
    overrides = state.overrides.tcp.by_end()
    return {
        "connection_count": len(found),
        "unlisted": sum(table.unlisted for table in tables.values()),
        "connections": [
            _as_json(state, nic, tables[nic], row, now_s, both_ends=bool(both[nic][row]))
            | {"override": _override(overrides, nic, tables[nic].rows[row])}
            for _, nic, row in shown
        ],
    }


def _override(overrides: Mapping[EndKey, SteerTcp], nic: NicName, row: np.void) -> Json | None:
    """What an operator wants of a connection at the end that tells of it; None where nobody wants anything."""
    local, remote = _addresses(row)
    key = nic[1], local, remote, int(row["local_port"]), int(row["remote_port"])
    wanted = overrides.get((nic[0], key))
    return None if wanted is None else {"sport": wanted.sport, "backup_sport": wanted.backup_sport}


def _addresses(row: np.void) -> tuple[str, str]:
    """Of the end that tells, and of the other one."""
    local, remote = (str(bytes_address(row[f"{end}_addr"].tobytes())) for end in ("local", "remote"))
    return local, remote


def _as_json(
    state: FleetState, nic: tuple[str, str], table: NicTable, i: int, now_s: float, *, both_ends: bool
) -> Json:
    row, silent_s = table.rows[i], now_s - float(table.heard_s[i])
    local, remote = _addresses(row)
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
        "steered": _steered(state, Connection(*nic, int(row["local_port"]), remote, int(row["remote_port"]))),
        "state": STATES[row["state"]],
        "process": {"pid": pid, "name": program, "cgroup": cgroup} if pid else None,
        "bps": _rate(_BITS * rates[0]),
        "received_bps": _rate(_BITS * rates[1]),
        "delivery_bps": _BITS * int(row["delivery_rate"]),
        **{name: int(row[name]) for name in _NUMBERS},
        "age_s": round(silent_s, 3),
    }


def _steered(state: FleetState, connection: Connection) -> Json | None:
    """How a connection is steered; None where it is not."""
    name = connection.name
    told = state.planner.steered_tcp.of(name)
    if told is None:
        return None
    steer = told.steer
    links = state.fabric.routes.ports(name.src, name.dst_addr).get(told.used_sport or steer.sport)
    return {
        "standing": standing(told),
        "sport": steer.sport,
        "backup_sport": steer.backup_sport,
        "used_sport": told.used_sport or None,
        "failed_over": told.failed_over,
        "nodes": None if links is None else nodes_of(state.fabric.routes, links),
        "set_by": set_by(told),
        "moves": state.planner.steered_tcp.moves[name],
        "bytes": told.bytes,
    }


def set_by(told: SteeredTcp) -> str:
    """Who wants a connection steered as it is."""
    if not told.managed:
        return "hand"
    return "operator" if told.steer.override else "planner"


def _rate(value: float) -> float | None:
    return round(float(value), 1) if math.isfinite(value) else None
