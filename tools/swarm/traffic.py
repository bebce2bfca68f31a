"""What the queue pairs of a swarm send: jobs whose hosts send to their neighbours, each rail for itself.

Of several pods the first host of each sends to the first host of the next one, too: their first jobs are one.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from cwdp.shared.bus.messages import SteerQp
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, QP_ROW, packed_address
from tools.swarm.fabric import NO_LINK, SwarmFabric, nic_address, nic_of

FIRST_QPN = 0x1000
FIRST_PORT = 0xC000
PORTS = 0x4000
PACKET_BYTES = 4096
FULL = 0.95
MOST_QUEUE_NS = 30_000.0
PERIOD_NS, LASTS_NS = 1_000_000_000, 500_000_000
"""Of a job's iterations, and of what is sent in one. Rates are told as means."""

assert QP_ROW.fields is not None
assert BURST_ROW.fields is not None
_BYTES_AT, _PACKETS_AT = (QP_ROW.fields[name][1] for name in ("bytes", "packets"))
_START_AT, _END_AT = (BURST_ROW.fields[name][1] for name in ("start_ns", "end_ns"))
"""Where those are among the bytes of a row, and so their bytes of all rows in a message (`cwdp.shared.bus.packing`)."""


class Traffic:
    """All queue pairs; their numbers run by NIC, `queue_pairs` of each.

    Args:
        fabric: over which they send; its queues follow the loads.
        seed: draws their ports.
    """

    def __init__(self, fabric: SwarmFabric, seed: int) -> None:
        size = fabric.size
        self._fabric = fabric
        rng = np.random.default_rng(seed)
        nic = np.repeat(np.arange(size.nics), size.queue_pairs)
        turn = np.tile(np.arange(size.queue_pairs), size.nics)
        host, rail = np.divmod(nic, size.nics_per_host)
        first = host - host % size.pod_hosts % size.job_hosts
        hosts = np.minimum(size.job_hosts, size.pod_hosts - first % size.pod_hosts)
        peer = first + (host - first + 1 + turn % np.minimum(size.peers, np.maximum(hosts - 1, 1))) % hosts
        if size.pods > 1:
            abroad = (host % size.pod_hosts == 0) & (turn % size.peers == 0)
            peer = np.where(abroad, (host + size.pod_hosts) % size.hosts, peer)
            first = np.where(first % size.pod_hosts == 0, 0, first)
        self.src, self.dst, self.job = nic, peer * size.nics_per_host + rail, first
        self.qpn = FIRST_QPN + turn
        self.sport = FIRST_PORT + rng.integers(0, PORTS, len(nic))
        self.bytes = np.zeros(len(nic))
        self.rate_bps = np.zeros(len(nic))
        self._counted_s = 0.0
        packed = np.frombuffer(
            b"".join(packed_address(nic_address(each)) for each in range(size.nics)), np.uint8
        ).reshape(-1, 16)
        self.told_qpn = self.qpn + 64 * (self.src % 997)
        rows = np.zeros(2 * len(nic), QP_ROW)
        sent, came = rows[: len(nic)], rows[len(nic) :]
        sent["addr"], came["addr"] = packed[self.dst], packed[self.src]
        sent["direction"], came["direction"] = EGRESS, INGRESS
        rows["qpn"], rows["sport"] = np.tile(self.told_qpn, 2), np.tile(self.sport, 2)
        owner = np.concatenate([self.src, self.dst])
        order = np.argsort(owner, kind="stable")
        self._rows, self._of = rows[order], order % len(nic)
        self._places = np.argsort(order).reshape(2, -1)
        self._starts: list[int] = np.searchsorted(owner[order], np.arange(size.nics + 1)).tolist()
        self._jobs = self.job[self._of]
        self._turned: dict[int, np.ndarray] = {}
        self._turned_bursts: dict[tuple[int, int], np.ndarray] = {}
        self._share()

    def count(self, now_s: float) -> None:
        """Go on to a time."""
        self.bytes += self.rate_bps / 8 * (now_s - self._counted_s if self._counted_s else 0.0)
        self._counted_s = now_s

    def told(self, nics: range) -> Iterator[bytes]:
        """QP_ROWs of each NIC for a message, both directions, as counted."""
        counted = self.bytes[self._of[self._rows_of(nics)]].astype("<u8")
        packets = counted // PACKET_BYTES
        for nic, begin, end in self._each(nics):
            turned = self._turned.get(nic)
            if turned is None:
                turned = self._turned[nic] = _turned(self._rows[self._rows_of(range(nic, nic + 1))])
            _put(turned, _BYTES_AT, counted[begin:end])
            _put(turned, _PACKETS_AT, packets[begin:end])
            yield turned.tobytes()

    def bursts(self, nics: range, starts_ns: np.ndarray) -> Iterator[bytes]:
        """BURST_ROWs of each NIC for a message, both directions, of bursts that begin then.

        Args:
            nics: of which.
            starts_ns: int64, shape (bursts, queue pairs of the NICs), as `jobs_of` has these.
        """
        for nic, begin, end in self._each(nics):
            key = nic, len(starts_ns)
            turned = self._turned_bursts.get(key)
            if turned is None:
                turned = self._turned_bursts[key] = _turned(self._burst_rows(*key))
            mine_ns = starts_ns[:, begin:end].ravel()
            _put(turned, _START_AT, mine_ns)
            _put(turned, _END_AT, mine_ns + LASTS_NS)
            yield turned.tobytes()

    def _burst_rows(self, nic: int, bursts: int) -> np.ndarray:
        """BURST_ROWs of a NIC, so many of each queue pair, that are yet to begin."""
        these = self._rows_of(range(nic, nic + 1))
        rows = np.zeros((bursts, these.stop - these.start), BURST_ROW)
        for name in ("addr", "qpn", "direction"):
            rows[name] = self._rows[name][these]
        rows["bytes"] = self.rate_bps[self._of[these]] / 8 * PERIOD_NS / 1e9
        rows["packets"], rows["bound_ns"] = rows["bytes"] // PACKET_BYTES, 500
        return rows.ravel()

    def jobs_of(self, nics: range) -> np.ndarray:
        """The job of each queue pair of NICs, both directions, in the order of their rows."""
        found: np.ndarray = self._jobs[self._rows_of(nics)]
        return found

    def steer(self, host: int, told: Iterable[SteerQp]) -> int:
        """Have a host's queue pairs leave as they are steered; how many have been moved by that."""
        size = self._fabric.size
        moved = 0
        for one in told:
            number = self._find(host * size.nics_per_host + int(one.nic[3:]), one.dst_addr, one.qpn)
            if number is not None and self.sport[number] != one.sport:
                self.sport[number] = self._rows["sport"][self._places[:, number]] = one.sport
                moved += 1
        if moved:
            self._turned.clear()
            self._turned_bursts.clear()
            self._share()
        return moved

    def _rows_of(self, nics: range) -> slice:
        return slice(self._starts[nics.start], self._starts[nics.stop])

    def _each(self, nics: range) -> Iterator[tuple[int, int, int]]:
        """Each NIC, where its rows begin among those of all of these, and where they end."""
        first = self._starts[nics.start]
        for nic in nics:
            yield nic, self._starts[nic] - first, self._starts[nic + 1] - first

    def _find(self, nic: int, dst_addr: str, qpn: int) -> int | None:
        size = self._fabric.size
        mine = np.arange(nic * size.queue_pairs, (nic + 1) * size.queue_pairs)
        found = mine[(self.dst[mine] == nic_of(dst_addr)) & (self.told_qpn[mine] == qpn)]
        return int(found[0]) if len(found) else None

    def _share(self) -> None:
        """Divide the links among the queue pairs, and have queues grow where they are full."""
        size = self._fabric.size
        self._paths = self._fabric.path(self.src, self.dst, self.sport)
        wanted = np.full(len(self.src), size.line_bps / size.queue_pairs)
        over = np.append(np.maximum(self._load(wanted) / (FULL * size.line_bps), 1.0), 1.0)
        self.rate_bps = wanted / over[self._paths].max(axis=1)
        full = np.append(self._load(self.rate_bps), 0.0) > 0.9 * size.line_bps
        self._fabric.queue_ns[:] = np.where(full, MOST_QUEUE_NS, 0.0)
        self._fabric.queue_ns[-1] = 0.0

    def _load(self, rate_bps: np.ndarray) -> np.ndarray:
        used = self._paths != NO_LINK
        weights = np.broadcast_to(rate_bps[:, None], self._paths.shape)[used]
        return np.bincount(self._paths[used], weights, self._fabric.size.links)


def _turned(rows: np.ndarray) -> np.ndarray:
    """Rows as a message has them, to be written into, shape (bytes of a row, rows)."""
    return np.frombuffer(row_bytes(rows), np.uint8).reshape(rows.dtype.itemsize, -1).copy()


def _put(turned: np.ndarray, first: int, values: np.ndarray) -> None:
    """Have turned rows hold 8-byte values whose first byte is at `first` in a row."""
    turned[first : first + 8] = values.view(np.uint8).reshape(-1, 8).T
