"""Announces steered TCP connections to their far ends, over both their paths in turn and over many ways back.

The dataplane puts each connection's ports into the probe and notes the answer (bpf/tcp/announce.h); here it is only seen to
that one is sent often enough.
"""

import socket
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.pulses import FLOW_LABEL_MASK, SEQ_END, PulseOrder, Pulses, Tables
from cwdp.agent.liveness.replyports import PORTS, draw_ports
from cwdp.agent.probing import packets
from cwdp.agent.probing.sender import MAX_BATCH, BatchSender
from cwdp.dataplane.abi import Position, Sender, SteerFlag
from cwdp.dataplane.addresses import words_address

COUNTERS = ("announcements_sent", "announcements_unsent")
SENDERS = {socket.AF_INET: Sender.TCP_IPV4, socket.AF_INET6: Sender.TCP_IPV6}
EVERY_NS = 1_000_000_000
"""For one that the far end has confirmed; several are missed before the dataplane's lease ends."""

UNCONFIRMED_EVERY_NS = 100_000_000


class _Ring:
    """The connections of one address family: a template for each reply port and connection."""

    def __init__(
        self,
        order: PulseOrder,
        tables: Tables,
        family: int,
        records: NDArray[np.void],
        numbers: NDArray[np.intp],
    ) -> None:
        self.numbers = numbers
        ports = draw_ports(len(numbers), np.random.default_rng())
        paths = [
            packets.Path(
                number=int(number),
                source=str(words_address(record["key"]["local_addr"])),
                destination=str(words_address(record["key"]["remote_addr"])),
                sport=_sport(record, turn),
                reply_port=int(port),
                protocol=socket.IPPROTO_TCP,
            )
            for turn in range(PORTS)
            for number, record, port in zip(numbers, records, ports[:, turn], strict=True)
        ]
        self._templates = packets.requests(paths, order.key_id, order.port)
        if family == socket.AF_INET6:
            self._templates["ip"]["flow"] |= self._templates["packet"]["sport"] & FLOW_LABEL_MASK
        self._templates["packet"]["probe"]["pair_position"] = Position.CONNECTION
        self._turn = np.zeros(len(numbers), dtype=np.intp)
        self.sent_ns = np.zeros(len(numbers), dtype=np.int64)
        self._sender = BatchSender(order.ifname, paths[0].family, self._templates)
        tables.sign_for(SENDERS[paths[0].family], self._sender.cookie)

    def send(self, chosen: NDArray[np.intp], seq: int) -> int:
        """Announce the chosen ones, the first with this number; returns how many were sent."""
        rows = self._turn[chosen] * len(self.numbers) + chosen
        self._turn[chosen] = (self._turn[chosen] + 1) % PORTS
        self._templates["packet"]["probe"]["seq"][rows] = np.arange(seq, seq + len(rows)) % SEQ_END
        return sum(
            self._sender.send_rows(rows[start : start + MAX_BATCH])[0]
            for start in range(0, len(rows), MAX_BATCH)
        )

    def close(self) -> None:
        self._sender.close()


class Announcements:
    """Announces the connections that one NIC steers by ports.

    Args:
        order: what to send from, and how.
        tables: the interface's maps; they stay the caller's.
        conns: the map `tcp_conns`.
        pulses: of the same NIC, whose slots are used.
        counters: totals by name (`COUNTERS`), over all NICs.
    """

    def __init__(
        self,
        order: PulseOrder,
        tables: Tables,
        conns: NDArray[np.void],
        pulses: Pulses,
        counters: Counter[str],
    ) -> None:
        self._order, self._tables, self._conns = order, tables, conns
        self._pulses, self._counters = pulses, counters
        self._known = b""
        self._rings: list[_Ring] = []

    def refresh(self, now_ns: int) -> None:
        """Take up changes of the connections, and send what is due at a CLOCK_MONOTONIC.

        Raises:
            OSError: a socket cannot be made or bound.
        """
        numbers = np.flatnonzero(self._conns["flags"] & SteerFlag.PORTS)
        known = numbers.tobytes() + b"".join(
            self._conns[name][numbers].tobytes() for name in ("key", "sport", "backup_sport", "flags")
        )
        if known != self._known:
            self._take_up(numbers)
            self._known = known
        for ring in self._rings:
            confirmed_ns = self._conns["confirmed_ns"][ring.numbers].astype(np.int64)
            is_sure = (confirmed_ns > 0) & (now_ns - confirmed_ns < 2 * EVERY_NS)
            every_ns = np.where(is_sure, EVERY_NS, UNCONFIRMED_EVERY_NS)
            due = np.flatnonzero(now_ns - ring.sent_ns >= every_ns)
            if len(due):
                ring.sent_ns[due] = now_ns
                sent = ring.send(due, self._pulses.take_numbers(len(due)))
                self._counters["announcements_sent"] += sent
                self._counters["announcements_unsent"] += len(due) - sent

    def close(self) -> None:
        """Close the sockets."""
        for ring in self._rings:
            ring.close()
        self._rings = []

    def _take_up(self, numbers: NDArray[np.intp]) -> None:
        self.close()
        records = self._conns[numbers]
        is_ipv4 = (records["key"]["remote_addr"][:, :3] == (0, 0, 0xFFFF)).all(axis=1)
        for family, mask in ((socket.AF_INET, is_ipv4), (socket.AF_INET6, ~is_ipv4)):
            if mask.any():
                ring = _Ring(self._order, self._tables, family, records[mask], numbers[mask])
                self._rings.append(ring)


def _sport(record: NDArray[np.void], turn: int) -> int:
    """The path's source port, or every other time the backup's."""
    by_backup = turn % 2 and record["flags"] & SteerFlag.BACKUP
    return int(record["backup_sport" if by_backup else "sport"])
