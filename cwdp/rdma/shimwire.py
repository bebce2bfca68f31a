"""What agent and shim tell each other, as `cwdp/rdma/shim/wire.h` has it: messages, and the table of paths.

The agent has a table in a sealed memfd, which every program maps: from it queue pairs take their flow labels, or on InfiniBand
their LIDs, as they are connected. Host byte order throughout; a test holds layouts and look-up against the C.
"""

import fcntl
import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.rdma.ib.lid import LID_MAX, LMC_MAX
from cwdp.rdma.sport import flow_label_to_sport, sport_to_flow_label
from cwdp.shared.bus.messages import Actuator

SOCKET = "/run/cwdp-verbs/verbs.sock"
MAGIC = 0x62765743
VERSION = 3
CHOICES = 16
MOST_SOURCES, MOST_BITS, STEPS = 4_096, 20, 256
"""Bounds of a table: its sources, the number of its routes in bits, and how far a route may stand behind its hash's place."""

NAME_BYTES = 64
COUNTS = 63
UNCOUNTED = 2**32 - 1
GONE = 255
"""A state: the queue pair is destroyed."""

RTR, RTS = 2, 3
"""Of `enum ibv_qp_state`."""

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
FNV_BASIS, FNV_PRIME = 2166136261, 16777619

ACTUATORS: tuple[Actuator, ...] = ("create_only", "mlx5dv", "bnxt", "sqd", "apm")
"""How a queue pair can be moved while it sends, in the order of `enum cwdp_verbs_actuator`."""

HEAD = struct.Struct(f"=II{NAME_BYTES}sII")
HELLO = struct.Struct(HEAD.format + f"IIQ{NAME_BYTES}s")
QP = struct.Struct(HEAD.format + "IIII16sIIIIII")
MOVE = struct.Struct(HEAD.format + "QQIIIxxxx")
MOVED = struct.Struct(HEAD.format + "QQII")
SENT = struct.Struct(HEAD.format + f"I{COUNTS}I{COUNTS}Q")
MOST_BYTES = max(each.size for each in (HELLO, QP, MOVE, MOVED, SENT))

TABLE = np.dtype(
    [("magic", "u4"), ("version", "u4"), ("number", "u8"), ("sources", "u4"), ("route_bits", "u4")]
)
SOURCE = np.dtype([("device", f"S{NAME_BYTES}"), ("port", "u4"), ("gid_index", "u4"), ("gid", "u1", (16,))])
ROUTE = np.dtype(
    [
        ("src", "u1", (16,)),
        ("dst", "u1", (16,)),
        ("used", "u4"),
        ("lmc", "u4"),
        ("choices", "u4"),
        ("path", "u4", (CHOICES,)),
        ("up_to", "u4", (CHOICES,)),
    ]
)


_CHOICES_OF_ROUTE = np.dtype([("choices", "u4"), ("path", "u4", (CHOICES,)), ("up_to", "u4", (CHOICES,))])


class Kind(IntEnum):
    """Of messages, as `enum cwdp_verbs_kind`."""

    HELLO = 1
    TABLE = 2
    QP_RTR = 3
    QP_STATE = 4
    MOVE = 5
    MOVED = 6
    SENT = 7


class How(IntEnum):
    """What a queue pair is to do to take another path, as `enum cwdp_verbs_how`."""

    AT_ONCE = 0
    MAY_DRAIN = 1
    LOAD = 2
    MIGRATE = 3


_SIZES = {Kind.QP_RTR: QP.size, Kind.QP_STATE: HEAD.size, Kind.MOVED: MOVED.size, Kind.SENT: SENT.size}
"""Of the messages that a shim sends, but HELLO."""

_VERSION = struct.Struct("=I")


class Hello(NamedTuple):
    """A program is there.

    Attributes:
        refused: how often a device refused the table's path.
        untold: queue pairs that were forgotten, as nobody took them.
        job: a variable of its environment that names its job, NAME=VALUE; whatever the program wants, of characters that can
            be shown.
    """

    version: int
    refused: int
    untold: int
    job: str = ""


class QpPath(NamedTuple):
    """A queue pair has a path.

    Attributes:
        flow_label: in force; 0 for the device's own choice.
        by_table: whether the table gave it, not 0 for yes.
        actuator: its place in ACTUATORS.
        count_place: names its count in `Sent`; UNCOUNTED where it has none.
        lid: of its port without path bits, where that is InfiniBand's, whose DLID and source path bits follow; else 0.
    """

    device: str
    qpn: int
    state: int
    port: int
    gid_index: int
    dest_qpn: int
    flow_label: int
    dst: bytes
    by_table: int
    actuator: int
    count_place: int
    lid: int = 0
    dlid: int = 0
    src_path_bits: int = 0

    @property
    def has_lids(self) -> bool:
        """Whether its LIDs can be some, or are none."""
        return self.lid <= LID_MAX and self.dlid < 1 << 16 and self.src_path_bits < 1 << LMC_MAX

    @property
    def path(self) -> int | None:
        """The UDP source port by its flow label, None for the device's own choice; on InfiniBand the DLID."""
        if self.lid:
            return self.dlid
        return flow_label_to_sport(self.flow_label & 0xFFFFF) if self.flow_label else None


class QpState(NamedTuple):
    """A queue pair is in another state, or GONE."""

    device: str
    qpn: int
    state: int


class Moved(NamedTuple):
    """What came of an order to move; `error` is an errno, 0 where it is moved."""

    device: str
    qpn: int
    state: int
    number: int
    took_ns: int
    error: int
    actuator: int


class Sent(NamedTuple):
    """Bytes that queue pairs were given to send since they were made, by the places of their counts."""

    counts: tuple[tuple[int, int], ...]


Message = Hello | QpPath | QpState | Moved | Sent


class Source(NamedTuple):
    """A GID that queue pairs send from, as programs name it."""

    device: str
    port: int
    gid_index: int
    gid: bytes


class Route(NamedTuple):
    """The source ports of queue pairs between two GIDs, of 16 bytes, and the share of each; at most CHOICES.

    Between two LIDs (`cwdp.rdma.ib.lid`) these are DLIDs, in the order of both ends, and `lmc` is the destination's.
    """

    src: bytes
    dst: bytes
    shares: tuple[tuple[int, float], ...]
    lmc: int | None = None


def read(data: bytes) -> Message | None:
    """A message of a shim's; None for what is none."""
    if len(data) < HEAD.size:
        return None
    magic, kind, name, qpn, state = HEAD.unpack_from(data)
    if magic == MAGIC and kind == Kind.HELLO:
        return _hello(data)
    device = _device(name)
    if magic != MAGIC or device is None or len(data) != _SIZES.get(kind):
        return None
    if kind == Kind.QP_STATE:
        return QpState(device, qpn, state)
    if kind == Kind.SENT:
        return _sent(SENT.unpack(data)[5:])
    more = (QP if kind == Kind.QP_RTR else MOVED).unpack(data)[5:]
    message = QpPath(device, qpn, state, *more) if kind == Kind.QP_RTR else Moved(device, qpn, state, *more)
    is_sane = message.actuator < len(ACTUATORS) and (isinstance(message, Moved) or message.has_lids)
    return message if is_sane else None


def head(kind: Kind, device: str = "", qpn: int = 0, state: int = 0) -> bytes:
    """How every message begins."""
    return HEAD.pack(MAGIC, kind, device.encode(), qpn, state)


def move(device: str, qpn: int, number: int, deadline_ns: int, sport: int, *, with_sqd: bool) -> bytes:
    """An order to take another source port, by CLOCK_MONOTONIC not begun after `deadline_ns`."""
    how = How.MAY_DRAIN if with_sqd else How.AT_ONCE
    return MOVE.pack(MAGIC, Kind.MOVE, device.encode(), qpn, 0, number, deadline_ns, sport, 0, how)


def migrate(name: tuple[str, int], number: int, deadline_ns: int, to: tuple[int, int], how: How) -> bytes:
    """A step towards another path of InfiniBand, LOAD or MIGRATE; `to` is a DLID and its port's LMC."""
    return MOVE.pack(MAGIC, Kind.MOVE, name[0].encode(), name[1], 0, number, deadline_ns, *to, how)


def pack(number: int, sources: Sequence[Source], routes: Sequence[Route]) -> bytes:
    """A table of these, one route for each pair of GIDs; without those beyond MOST_SOURCES, and those that have no place.

    Raises:
        ConfigError: a port is outside of the dynamic range.
    """
    bits = min(MOST_BITS, max(1, (2 * len(routes) - 1).bit_length()))
    rows, missed = _routes(routes, 1 << bits)
    while missed and bits < MOST_BITS:
        bits += 1
        rows, missed = _routes(routes, 1 << bits)
    header = np.zeros(1, TABLE)
    header[0] = (MAGIC, VERSION, number, min(len(sources), MOST_SOURCES), bits)
    return header.tobytes() + _sources(sources[:MOST_SOURCES]).tobytes() + rows.tobytes()


def sealed(table: bytes) -> int:
    """A descriptor of a memfd that holds these bytes and can never be changed; the caller closes it.

    Raises:
        OSError: there is no memory for it.
    """
    fd = os.memfd_create("cwdp-verbs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(table)
        while rest:
            rest = rest[os.write(fd, rest) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def hashes(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """FNV-1a over the bytes of each row, shape (rows,); rows are a source GID and a destination GID, shape (rows, 32)."""
    found = np.full(len(keys), FNV_BASIS, dtype=np.uint32)
    for column in keys.T:
        found = (found ^ column) * np.uint32(FNV_PRIME)
    return found


def _sources(sources: Sequence[Source]) -> NDArray[np.void]:
    rows = np.zeros(len(sources), SOURCE)
    for row, source in zip(rows, sources, strict=True):
        row["device"], row["port"], row["gid_index"] = source.device.encode(), source.port, source.gid_index
        row["gid"] = np.frombuffer(source.gid, np.uint8)
    return rows


def _routes(routes: Sequence[Route], size: int) -> tuple[NDArray[np.void], int]:
    """The routes in the places where a look-up comes by, and how many have none."""
    rows = np.zeros(size, ROUTE)
    if not routes:
        return rows, 0
    keys = np.frombuffer(b"".join(route.src + route.dst for route in routes), np.uint8).reshape(-1, 32)
    placed = _places((hashes(keys) & np.uint32(size - 1)).tolist(), size)
    which, places = list(placed), list(placed.values())
    rows["src"][places], rows["dst"][places] = keys[which, :16], keys[which, 16:]
    rows["used"][places] = 1
    rows["lmc"][places] = [routes[i].lmc or 0 for i in which]
    made = b"".join(_choices(routes[i].shares, routes[i].lmc is not None) for i in which)
    choices = np.frombuffer(made, _CHOICES_OF_ROUTE)
    for field in ("choices", "path", "up_to"):
        rows[field][places] = choices[field]
    return rows, len(routes) - len(placed)


@lru_cache(1 << 17)
def _choices(shares: tuple[tuple[int, float], ...], by_lid: bool) -> bytes:
    """Number, flow labels or DLIDs, and running sums of a route, as they lie in it."""
    row = np.zeros(1, _CHOICES_OF_ROUTE)[0]
    chosen = [(sport, share) for sport, share in shares if share > 0][:CHOICES]
    row["choices"] = len(chosen)
    row["path"][: len(chosen)] = [path if by_lid else sport_to_flow_label(path) for path, _ in chosen]
    row["up_to"][: len(chosen)] = _running([share for _, share in chosen])
    return bytes(row.tobytes())


def _places(wanted: list[int], size: int) -> dict[int, int]:
    """From each route's number to its place, the first free one within STEPS of the wanted; none where there is none."""
    taken: set[int] = set()
    places: dict[int, int] = {}
    for i, first in enumerate(wanted):
        for step in range(min(STEPS, size)):
            place = (first + step) % size
            if place not in taken:
                taken.add(place)
                places[i] = place
                break
    return places


def _running(shares: list[float]) -> NDArray[np.uint32]:
    """Running sums of shares as parts of 2**32, each less 1."""
    sums = np.cumsum(shares)
    parts = np.maximum(np.round(sums / sums[-1:] * 2**32), 1)
    ends: NDArray[np.uint32] = (parts - 1).astype(np.uint32)
    return ends


def _hello(data: bytes) -> Hello | None:
    """One of another version may be of another size: it begins the same."""
    if len(data) < HEAD.size + _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data, HEAD.size)
    if version != VERSION:
        return Hello(version, 0, 0)
    if len(data) != HELLO.size:
        return None
    refused, untold, job = HELLO.unpack(data)[6:]
    return Hello(version, refused, untold, _shown(job))


def _sent(numbers: tuple[int, ...]) -> Sent | None:
    count, places, octets = numbers[0], numbers[1 : 1 + COUNTS], numbers[1 + COUNTS :]
    return Sent(tuple(zip(places, octets, strict=True))[:count]) if count <= COUNTS else None


def _shown(text: bytes) -> str:
    """Up to its end, with another sign for each character that is not printable ASCII."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in text.split(b"\0", 1)[0])


def _device(name: bytes) -> str | None:
    """The name of a device; None for what is no name."""
    text = name.split(b"\0", 1)[0]
    return text.decode() if text.isascii() and text.decode().isprintable() else None
