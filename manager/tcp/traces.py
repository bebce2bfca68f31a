"""Which paths of TCP are to be traced, and those orders in hosts' documents. No I/O."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cwdp.shared.bus.messages import Desired, TraceOrder, nic_id
from cwdp.shared.tcp import SteerTcp
from manager.placement.flows import Flows
from manager.tcp.connections import NicName
from manager.tcp.names import is_tcp, plain_address, tcp_address

Pair = tuple[str, str]

IN_USE_S = 60.0
"""So long after the last large connection from a NIC to an address the paths between them are traced."""


class TcpUses:
    """Pairs of NICs and addresses between which large connections go.

    Attributes:
        by_nic: the pairs of each NIC, and source ports in use on the wire, 0 where none is known; equal ones are the same one.
        changes: another number whenever any has changed.
    """

    def __init__(self) -> None:
        self.by_nic: dict[NicName, tuple[tuple[Pair, int], ...]] = {}
        self.changes = 0
        self._seen_s: dict[NicName, dict[tuple[Pair, int], float]] = {}

    def see(
        self, connections: Flows, now_s: float, wanted: Mapping[str, Iterable[SteerTcp]] | None = None
    ) -> None:
        """These are all that send now, and those that operators want steered, by host: primary path and backup."""
        for name, sport in zip(connections.names, connections.sport.tolist(), strict=True):
            self._use((name.host, name.nic), name.dst_addr, sport, now_s)
        for host, steers in (wanted or {}).items():
            for one in steers:
                for sport in filter(None, (one.sport, one.backup_sport)):
                    self._use((host, one.nic), tcp_address(one.remote_addr), sport, now_s)
        now = {}
        for nic, seen_s in list(self._seen_s.items()):
            kept = {use: at_s for use, at_s in seen_s.items() if now_s - at_s < IN_USE_S}
            if kept:
                self._seen_s[nic], now[nic] = kept, tuple(sorted(kept))
            else:
                del self._seen_s[nic]
        if now != self.by_nic:
            self.changes += 1
            before = self.by_nic
            self.by_nic = {nic: before[nic] if before.get(nic) == uses else uses for nic, uses in now.items()}

    def _use(self, nic: NicName, address: str, sport: int, now_s: float) -> None:
        pair = nic_id(*nic), address
        self._seen_s.setdefault(nic, {})[pair, sport] = now_s


def with_tcp(nics: Mapping[str, str]) -> dict[str, str]:
    """The NIC at each address, and at what stands for it in the names of TCP paths."""
    return {**nics, **{tcp_address(address): nic for address, nic in nics.items()}}


class Divided:
    """Orders as documents have them.

    Attributes:
        of: what all hosts are to trace, as the manager knows it.
        roce, tcp: what each is to trace of RoCEv2's paths, and of TCP's.
    """

    def __init__(self, of: Mapping[str, list[TraceOrder]]) -> None:
        self.of = of
        self.roce = {host: _roce_only(orders) for host, orders in of.items()}
        self.tcp = {host: orders for host in of if (orders := _tcp_only(of[host]))}


def _roce_only(orders: list[TraceOrder]) -> list[TraceOrder]:
    """The same list where there are no others."""
    found = [order for order in orders if not is_tcp(order.dst_addr)]
    return orders if len(found) == len(orders) else found


def _tcp_only(orders: Sequence[TraceOrder]) -> list[TraceOrder]:
    return [
        msgspec.structs.replace(order, dst_addr=plain_address(order.dst_addr))
        for order in orders
        if is_tcp(order.dst_addr)
    ]


def told_before(told: Desired) -> list[TraceOrder]:
    """What a host was told to trace, as the manager knows it."""
    of_tcp = (
        msgspec.structs.replace(order, dst_addr=tcp_address(order.dst_addr)) for order in told.tcp_traces
    )
    return [*told.traces, *of_tcp]
