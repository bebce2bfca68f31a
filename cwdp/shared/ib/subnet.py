"""An InfiniBand subnet as arrays: nodes, ports, links, forwarding tables; how it is packed for the bus. Pure."""

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv6Address

import msgspec
import numpy as np
from numpy.typing import NDArray

SWITCH, CHANNEL_ADAPTER, ROUTER = 2, 1, 3
"""Kinds of nodes, by their number in NodeInfo (IBTA volume 1, 14.2.5.3)."""

ACTIVE = 4
"""The state of a port over which packets go (14.2.5.6)."""

PARTITION, FULL = 0x7FFF, 0x8000
"""Parts of a P_Key."""

NO_PEER = -1
DEFAULT_PREFIX = 0xFE80 << 48
"""Of a subnet that has been given no other (IBTA volume 1, 4.1.1)."""

NO_ROUTE = 0xFF

MOST_LMC = 7
"""It has three bits (14.2.5.6)."""

PORT = np.dtype(
    [
        ("node", "<i4"),
        ("number", "u1"),
        ("lid", "<u2"),
        ("lmc", "u1"),
        ("sm_lid", "<u2"),
        ("state", "u1"),
        ("is_linked", "?"),
        ("width", "u1"),
        ("widest", "u1"),
        ("lane_bps", "<u8"),
        ("fastest_bps", "<u8"),
        ("peer", "<i4"),
    ]
)
"""A port: the row of its node; `peer` is the row of the port at the far end of its link, or NO_PEER. The rest is as in
`cwdp.ib.attributes.PortInfo`. Of a switch port 0, by which it is managed, is there, too: it has the LID, and no link."""

KEY = np.dtype([("port", "<i4"), ("key", "<u2")])
"""A P_Key of a port, by the port's row: a partition's number, and in the highest bit whether the port is a full member."""

MOST_PACKED_BYTES = 256 << 20
"""Unpacked. A subnet has at most 49,151 LIDs, for each of which a switch has one byte."""

SubnetKey = tuple[int, int]
"""See `Subnet.key`."""


@dataclass(frozen=True)
class Subnet:
    """A subnet at one moment.

    Attributes:
        guids: of the nodes, ascending, uint64, shape (nodes,).
        names: their descriptions, printable.
        kinds: SWITCH, CHANNEL_ADAPTER or another number, uint8, shape (nodes,).
        ports: ordered by node and number, dtype PORT, shape (ports,).
        tables: for each switch, in the order of `switches`, the port by which packets to each LID leave, or NO_ROUTE, uint8,
            shape (switches, LIDs).
        silent: rows of ports with a link to something that does not answer.
        sm: of the subnet's manager as far as it is known: its GUID, and its routing engine where a reader can know it.
        port_guids: of the ports, 0 where it is not known, uint64, shape (ports,); empty of none known.
        prefix: of the subnet, the upper half of its ports' GIDs.
        keys: P_Keys of the hosts' ports that told theirs, by port, dtype KEY, shape (keys,).
    """

    guids: NDArray[np.uint64]
    names: tuple[str, ...]
    kinds: NDArray[np.uint8]
    ports: NDArray[np.void]
    tables: NDArray[np.uint8]
    silent: tuple[int, ...] = ()
    sm: tuple[int, str] = (0, "")
    port_guids: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    prefix: int = DEFAULT_PREFIX
    keys: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, KEY))

    @cached_property
    def switches(self) -> NDArray[np.intp]:
        """Rows of the nodes that are switches, ascending."""
        return np.flatnonzero(self.kinds == SWITCH)

    @cached_property
    def ends(self) -> frozenset[tuple[int, int]]:
        """Each port by the GUID of its node and its number. No two subnets have one in common, though an adapter may be in both."""
        guids = self.guids[self.ports["node"]].tolist()
        return frozenset(zip(guids, self.ports["number"].tolist(), strict=True))

    @cached_property
    def key(self) -> SubnetKey:
        """Of all subnets this one: its first switch's first port; where it has no switch its first port."""
        is_switch = self.kinds[self.ports["node"]] == SWITCH
        if not len(is_switch):
            return 0, 0
        row = int(np.argmax(is_switch))
        return int(self.guids[self.ports["node"][row]]), int(self.ports["number"][row])

    @cached_property
    def links(self) -> NDArray[np.int32]:
        """Each link once: the rows of its two ports, the lower first, shape (links, 2)."""
        rows = np.arange(len(self.ports), dtype=np.int32)
        peer = self.ports["peer"]
        is_first = rows < peer
        return np.stack([rows[is_first], peer[is_first]], axis=1)

    @cached_property
    def rates_bps(self) -> NDArray[np.float64]:
        """What the link of each port carries, all lanes together, encoding taken off; 0 for unknown, shape (ports,)."""
        rates_bps: NDArray[np.float64] = self.ports["width"].astype(np.float64) * self.ports["lane_bps"]
        return rates_bps

    def gid(self, row: int) -> str:
        """The GID of a port as IPv6 addresses are written; "" where its GUID is not known."""
        guid = int(self.port_guids[row]) if len(self.port_guids) else 0
        return str(IPv6Address(self.prefix << 64 | guid)) if guid else ""

    def keys_of(self, row: int) -> tuple[int, ...]:
        """The P_Keys of a port; none where they are not known."""
        begin, end = np.searchsorted(self.keys["port"], [row, row + 1])
        return tuple(self.keys["key"][begin:end].tolist())

    def may_talk(self, a: int, b: int) -> bool | None:
        """Whether two ports are in a partition of which one is a full member (IBTA volume 1, 10.9.3); None for not known."""
        ours, theirs = ({key & PARTITION: key & FULL for key in sorted(self.keys_of(row))} for row in (a, b))
        if not ours or not theirs:
            return None
        return any(ours[number] | theirs[number] for number in ours.keys() & theirs.keys())


class _Packed(msgspec.Struct, frozen=True, kw_only=True):
    guids: bytes
    names: list[str]
    kinds: bytes
    ports: bytes
    tables: bytes
    silent: list[int]
    sm: tuple[int, str]
    port_guids: bytes
    prefix: int
    keys: bytes = b""


def pack(subnet: Subnet) -> bytes:
    """For `unpack`, compressed."""
    return zlib.compress(
        msgspec.msgpack.encode(
            _Packed(
                guids=subnet.guids.astype("<u8").tobytes(),
                names=list(subnet.names),
                kinds=subnet.kinds.tobytes(),
                ports=subnet.ports.tobytes(),
                tables=subnet.tables.tobytes(),
                silent=list(subnet.silent),
                sm=subnet.sm,
                port_guids=subnet.port_guids.astype("<u8").tobytes(),
                prefix=subnet.prefix,
                keys=subnet.keys.tobytes(),
            )
        ),
        level=1,
    )


def unpack(data: bytes) -> Subnet:
    """What `pack` made.

    Raises:
        ValueError: it is no such thing, too large, or it contradicts itself.
    """
    inflate = zlib.decompressobj()
    try:
        whole = inflate.decompress(data, MOST_PACKED_BYTES)
        packed = msgspec.msgpack.decode(whole, type=_Packed)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"no subnet: {error}") from error
    kinds = np.frombuffer(packed.kinds, np.uint8)
    switches = int(np.count_nonzero(kinds == SWITCH))
    subnet = Subnet(
        np.frombuffer(packed.guids, "<u8").astype(np.uint64),
        tuple(packed.names),
        kinds,
        np.frombuffer(packed.ports, PORT),
        np.frombuffer(packed.tables, np.uint8).reshape(switches, -1 if switches and packed.tables else 0),
        tuple(packed.silent),
        packed.sm,
        np.frombuffer(packed.port_guids, "<u8").astype(np.uint64),
        packed.prefix,
        np.frombuffer(packed.keys, KEY),
    )
    _check(subnet)
    return subnet


def _check(subnet: Subnet) -> None:
    ports, nodes, rows = subnet.ports, len(subnet.guids), len(subnet.ports)
    peer = ports["peer"]
    linked = np.flatnonzero(peer != NO_PEER)
    is_sound = (
        len(subnet.names) == len(subnet.kinds) == nodes
        and len(subnet.port_guids) in (0, rows)
        and 0 <= subnet.prefix < 2**64
        and bool(np.all(subnet.guids[1:] > subnet.guids[:-1]))
        and bool(np.all((ports["node"] >= 0) & (ports["node"] < nodes)))
        and bool(np.all(ports["lmc"] <= MOST_LMC))
        and bool(np.all((peer >= NO_PEER) & (peer < rows)))
        and bool(np.all(peer[peer[linked]] == linked))
        and all(0 <= row < rows for row in subnet.silent)
        and bool(np.all((subnet.keys["port"] >= 0) & (subnet.keys["port"] < rows)))
        and bool(np.all(subnet.keys["port"][1:] >= subnet.keys["port"][:-1]))
    )
    if not is_sound:
        raise ValueError("a subnet that contradicts itself")
