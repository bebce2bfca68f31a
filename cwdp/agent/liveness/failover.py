"""What the dataplane decided about paths, as events for the manager."""

import ipaddress

import numpy as np

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, EventKind, SteerFlag
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import Ring
from cwdp.dataplane.telemetry import FREE_OR_BUSY
from cwdp.shared.bus.messages import Event, PathChange


class PathEvents:
    """The decisions of one interface's dataplane from now on.

    What it decided while no agent ran shows in its counters only.
    """

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._ring = Ring(maps.events, maps.control["event_head"])

    @property
    def lost(self) -> int:
        """Events that were written over before they were read."""
        return self._ring.lost

    def take(self, host: str, ifname: str) -> list[Event]:
        """What is new."""
        return [self._event(host, ifname, record) for record in self._ring.take()]

    def _event(self, host: str, ifname: str, record: np.void) -> Event:
        number, kind = int(record["path"]), EventKind(int(record["kind"]))
        path = self._maps.paths[number]
        local_ns, bound_ns = int(record["local_ns"]), int(record["bound_ns"])
        synced = bound_ns != abi.BOUND_UNSYNCED
        change = PathChange(
            time_ns=local_ns + int(record["offset_ns"]) if synced else None,
            bound_ns=bound_ns if synced else None,
            dst_addr=str(words_address(path["dst"])),
            sport=int(path["sport"]),
            lasted_ns=int(record["lasted_ns"]),
            unanswered=int(record["unanswered"]),
            hold_down_ns=int(record["hold_ns"]),
            queue_pairs=self._queue_pairs(number),
            connections=self._connections(number),
            protocol=int(path["protocol"]),
        )
        return Event(
            host=host,
            local_ns=local_ns,
            kind="path_down" if kind is EventKind.PATH_DOWN else "path_up",
            nic=ifname,
            detail=_describe(kind, change),
            path=change,
        )

    def _queue_pairs(self, number: int) -> int:
        """How many queue pairs that have sent of late take this path while it is up, and have a backup."""
        table = self._maps.qps[Direction.EGRESS]
        backed = (table["flags"] & SteerFlag.BACKUP) != 0
        return int(np.count_nonzero((table["path"] == number) & backed & (table["tag"] > FREE_OR_BUSY)))

    def _connections(self, number: int) -> int:
        """How many TCP connections take this path while it is up, and have a backup."""
        conns = self._maps.tcp_conns
        return int(np.count_nonzero((conns["path"] == number) & (conns["flags"] & SteerFlag.BACKUP > 0)))


def _describe(kind: EventKind, change: PathChange) -> str:
    address = ipaddress.ip_address(change.dst_addr)
    shown = f"[{address}]" if address.version == 6 else str(address)
    where = f"to {shown} from port {change.sport}"
    users = f"{change.queue_pairs} queue pairs"
    if change.protocol:
        where, users = f"TCP {where}", f"{change.connections} TCP connections"
    if kind is EventKind.PATH_DOWN:
        return (
            f"{where}: silent for {change.lasted_ns / 1e6:.1f} ms, {change.unanswered} pulses unanswered; "
            f"{users} take their backup for {change.hold_down_ns / 1e9:g} s or longer"
        )
    return f"{where}: healthy for {change.lasted_ns / 1e9:.1f} s; {users} take it again"
