"""Which queue pairs are worth keeping, and what is kept of them: the top talkers, and those that a finding touches."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, shown_address
from manager.fabric.routes import is_nic
from manager.queue_pairs.counters import RATE_HOLDS_S
from manager.state import FleetState

TOP = 32
TOUCHED = 64
LOOKED_AT = 1_024
"""Of the fastest queue pairs, to see whether a finding touches them."""

KEPT_S = 3_600.0
_BYTES = 1
_BITS = 8

Nic = tuple[str, str]
Row = tuple[str, str, bytes]


def chosen(state: FleetState, now_s: float) -> list[Row]:
    """Host, NIC and the rest as JSON, of queue pairs that send; the fastest first.

    Args:
        state: what the manager knows.
        now_s: its monotonic clock.
    """
    fastest = list(islice(_fastest(state, now_s), LOOKED_AT))
    wanted = dict.fromkeys(fastest[:TOP], "rate")
    links, nics = _at_fault(state)
    if links or nics:
        touched = (place for place in fastest if _is_touched(state, place, links, nics))
        wanted = dict.fromkeys(islice(touched, TOUCHED), "finding") | wanted
    return [_row(state, place, why, now_s) for place, why in wanted.items()]


def _fastest(state: FleetState, now_s: float) -> Iterator[tuple[Nic, int]]:
    """NIC and row of those that have sent of late, at most `LOOKED_AT`."""
    tables = {nic: table for nic, table in state.traffic.queue_pairs.tables.items() if len(table.rows)}
    if not tables:
        return
    bytes_per_s = np.nan_to_num(np.concatenate([table.rates[:, _BYTES] for table in tables.values()]))
    heard_s = np.concatenate([table.heard_s for table in tables.values()])
    direction = np.concatenate([table.rows["direction"] for table in tables.values()])
    rates = np.where((now_s - heard_s < RATE_HOLDS_S) & (direction == EGRESS), bytes_per_s, 0.0)
    ends = np.cumsum([len(table.rows) for table in tables.values()])
    nics = list(tables)
    most = min(LOOKED_AT, len(rates))
    top = np.argpartition(-rates, most - 1)[:most]
    for i in top[np.argsort(-rates[top], kind="stable")].tolist():
        if not rates[i] > 0:
            return
        which = int(np.searchsorted(ends, i, side="right"))
        yield nics[which], i - (int(ends[which - 1]) if which else 0)


def _at_fault(state: FleetState) -> tuple[set[int], set[str]]:
    """The numbers of links that findings name, and the NICs and hosts at their ends."""
    named = [
        subject for finding in state.faults.current.values() for subject in (finding.subject, *finding.also)
    ]
    links = {link for subject in named for link in subject.links}
    nics = {node for link in links for node in link if is_nic(node)}
    nics |= {subject.name for subject in named if subject.kind in ("nic", "host")}
    numbers = {i for i, link in enumerate(state.fabric.routes.links) if link in links} if links else set()
    return numbers, nics


def _is_touched(state: FleetState, place: tuple[Nic, int], links: set[int], nics: set[str]) -> bool:
    nic, i = place
    row = state.traffic.queue_pairs.tables[nic].rows[i]
    address = shown_address(row["addr"].tobytes())
    peer = state.members.nics_by_address.get(address, "")
    ends = {nic_id(*nic), nic[0], peer, peer.partition("/")[0]}
    if ends & nics:
        return True
    crossed = state.fabric.routes.ports(nic_id(*nic), address).get(int(row["sport"]), ())
    return bool(links & set(crossed))


def _row(state: FleetState, place: tuple[Nic, int], why: str, now_s: float) -> Row:
    nic, i = place
    table = state.traffic.queue_pairs.tables[nic]
    row = table.rows[i]
    packed = row["addr"].tobytes()
    address = shown_address(packed)
    delay = state.traffic.delays.delay(nic, packed, int(row["qpn"]), state.traffic.timeline_ns(now_s) or 0)
    kept: dict[str, Any] = {
        "dst_addr": address,
        "peer": state.members.nics_by_address.get(address),
        "qpn": int(row["qpn"]),
        "sport": int(row["sport"]),
        "bps": round(_BITS * float(table.rates[i, _BYTES])),
        "paced_bps": table.paced_bps.get((packed, int(row["qpn"]))),
        "ce_marks": int(row["ce_marks"]),
        "cnps": int(row["cnps"]),
        "naks": int(row["naks"].sum()),
        "psn_retransmitted": int(row["psn_retransmitted"]),
        "owd": delay,
        "path": _path(state, nic_id(*nic), address, int(row["sport"])),
        "why": why,
    }
    return nic[0], nic[1], msgspec.json.encode(kept)


def _path(state: FleetState, nic: str, dst_addr: str, sport: int) -> list[str] | None:
    """The nodes on its way, both NICs included; None where that is not known."""
    routes = state.fabric.routes
    crossed = routes.ports(nic, dst_addr).get(sport, ())
    links = [routes.links[number] for number in crossed]
    return [links[0][0], *(b for _, b in links)] if links else None
