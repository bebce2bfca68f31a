"""What the dataplane costs TCP: segments of steered connections, and of all others.

Needs root and `build/bpf/bench.bpf.o`, whose programs put the segment back before each run; its buffer has a flow's hash, as
those of connected sockets have, so that steering has to invalidate it.
"""

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, SteerFlag
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import control
from cwdp.dataplane.steering.tcp import TcpConnection
from tools.bench.figures import Figure
from tools.bench.packet_costs.flows import ADDRESSES
from tools.bench.packet_costs.measure import BENCH_OBJECT, Case, cost_figure, costs

STEERED_TARGET_NS = 60
FOREIGN_TARGET_NS = 10

PORTS = (43_210, 5_201)
SPORT, BACKUP_SPORT = 50_001, 50_002
NUMBER, BACK_NUMBER, PATH, BACKUP_PATH = 1, 2, 1, 2
FRAME_WORDS = 18
CONFIRMED_AHEAD_NS = 3_600_000_000_000
"""The benchmark confirms nothing while it runs."""

_TCP, _ACK = 6, 0x10
_HEADER = struct.Struct("!HHIIBBHHH")


@dataclass(frozen=True)
class _Tables:
    """What is steered: nothing, one connection, or others of which one has the same sum of ports."""

    name: str
    ports: tuple[int, int] | None


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    with BpfObject(BENCH_OBJECT) as obj:
        obj.set_initial_value(".rodata", Settings(qp_buckets=1).to_bytes())
        for name in ("qps_out", "qps_in"):
            obj.set_max_entries(name, 1)
        obj.load()
        libbpf.map_update(obj.map_fd("control"), 0, control.initial().tobytes())
        for family, addresses in ADDRESSES.items():
            yield from _family(obj, family, addresses)


def _family(obj: BpfObject, family: str, addresses: tuple[str, str]) -> Iterator[Figure]:
    connection = TcpConnection(ip_address(addresses[0]), ip_address(addresses[1]), *PORTS)
    own, wire = _segment(connection, PORTS, 0), _segment(connection, (SPORT, abi.ROCE_PORT), _urgent())
    others = TcpConnection(connection.local, connection.remote, PORTS[0] - 1, PORTS[1] + 1)
    yield _cost(obj, f"tcp_unnamed_egress_{family}", "tc", own, FOREIGN_TARGET_NS)
    yield _cost(obj, f"tcp_unnamed_ingress_{family}", "xdp", own, FOREIGN_TARGET_NS)
    _steer(obj, others)
    yield _cost(obj, f"tcp_unnamed_alike_egress_{family}", "tc", own, None)
    _unsteer(obj, others)
    _steer(obj, connection)
    yield _cost(obj, f"tcp_steered_egress_{family}", "tc", own, STEERED_TARGET_NS)
    yield _cost(obj, f"tcp_restored_ingress_{family}", "xdp", wire, STEERED_TARGET_NS)
    _steer(obj, connection, path_state=PathState.DOWN)
    yield _cost(obj, f"tcp_backup_egress_{family}", "tc", own, STEERED_TARGET_NS)
    _unsteer(obj, connection)


def _cost(obj: BpfObject, name: str, hook: str, frame: bytes, target_ns: float | None) -> Figure:
    libbpf.map_update(obj.map_fd("bench_frame"), 0, frame[: 8 * FRAME_WORDS])
    programs = {"tc": ("tc_segment", "tc_put_segment_back"), "xdp": ("xdp_reflect", "xdp_put_frame_back")}
    (cost,) = costs(obj, [Case(name, *programs[hook], frame, target_ns)])
    return cost_figure(name, cost.ns, "ns", cost.reference_ns, target_ns)


def _urgent() -> int:
    return (sum(PORTS) - SPORT - abi.ROCE_PORT - 1) % 0xFFFF + 1


def _segment(connection: TcpConnection, ports: tuple[int, int], urgent: int) -> bytes:
    """A frame with a segment of 1,000 bytes; no checksum is looked at."""
    tcp = _HEADER.pack(*ports, 1, 1, 5 << 4, _ACK, 1000, 0, urgent) + bytes(1000)
    ends = connection.local.packed + connection.remote.packed
    if connection.local.version == 4:
        return (
            bytes(12)
            + b"\x08\x00"
            + struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, _TCP, 0)
            + ends
            + tcp
        )
    return bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(tcp), _TCP, 64) + ends + tcp


def _steer(obj: BpfObject, connection: TcpConnection, path_state: PathState = PathState.UP) -> None:
    path = np.zeros((), dtype=abi.PATH)
    path["state"] = path_state
    libbpf.map_update(obj.map_fd("paths"), PATH, path.tobytes())
    back = TcpConnection(connection.remote, connection.local, connection.remote_port, connection.local_port)
    for number, one in ((NUMBER, connection), (BACK_NUMBER, back)):
        libbpf.map_update(obj.map_fd("tcp_conns"), number, _record(one).tobytes())
    libbpf.hash_update(obj.map_fd("tcp_out"), connection.pack(), NUMBER.to_bytes(4, "little"))
    ports = np.zeros((), dtype=abi.TCP_PORTS)
    ports["from_port"], ports["to_port"] = connection.local_port, connection.remote_port
    ports["number"] = BACK_NUMBER
    libbpf.hash_update(obj.map_fd("tcp_in"), connection.wire_key(), ports.tobytes())
    _write_sums(obj, 1)


def _record(connection: TcpConnection) -> NDArray[np.void]:
    record = np.zeros((), dtype=abi.TCP_CONN)
    record["key"] = connection.record()
    record["sport"], record["backup_sport"] = SPORT, BACKUP_SPORT
    record["path"], record["backup_path"] = PATH, BACKUP_PATH
    record["flags"] = int(SteerFlag.ON | SteerFlag.BACKUP | SteerFlag.PORTS)
    record["confirmed_ns"] = time.monotonic_ns() + CONFIRMED_AHEAD_NS
    return record


def _unsteer(obj: BpfObject, connection: TcpConnection) -> None:
    libbpf.hash_delete(obj.map_fd("tcp_out"), connection.pack())
    _write_sums(obj, 0)


def _write_sums(obj: BpfObject, count: int) -> None:
    record = np.zeros((), dtype=abi.TCP_STEERED)
    record["total"], record["by_sum"] = count, count
    libbpf.map_update(obj.map_fd("tcp_steered"), 0, record.tobytes())
