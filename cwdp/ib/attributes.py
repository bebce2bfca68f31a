"""Attributes of nodes and ports: how they are asked for, and read. Pure.

IBTA Architecture Specification, volume 1: 14.2.5 (subnet management), 16.1.3 (performance management).
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.umad import MadClass, Request

LIDS_A_BLOCK, KEYS_A_BLOCK = 64, 32
NO_ROUTE = 0xFF
"""In a linear forwarding table: packets to that LID are dropped."""

NAME_BYTES = 64


class Attribute(IntEnum):
    """Of subnet management."""

    NODE_DESCRIPTION = 0x10
    NODE_INFO = 0x11
    SWITCH_INFO = 0x12
    PORT_INFO = 0x15
    PARTITION_TABLE = 0x16
    LINEAR_FORWARDING_TABLE = 0x19
    SM_INFO = 0x20


class NodeType(IntEnum):
    """What a node is."""

    CHANNEL_ADAPTER = 1
    SWITCH = 2
    ROUTER = 3


class ManagerState(IntEnum):
    """Of a subnet manager."""

    DISCOVERING = 1
    STANDBY = 2
    MASTER = 3


class PortState(IntEnum):
    """Logical."""

    DOWN = 1
    INITIALIZE = 2
    ARMED = 3
    ACTIVE = 4


PHYSICAL_LINK_UP = 5

WIDTHS = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
"""Lanes by the bit that says so."""

LANE_BPS = {1: 2_500_000_000, 2: 5_000_000_000, 4: 10_000_000_000}
"""On the wire by the bit of LinkSpeed; of each 10 bits 8 are data."""

EXTENDED_LANE_BPS = {1: 14_062_500_000, 2: 25_781_250_000, 4: 53_125_000_000, 8: 106_250_000_000}
"""By the bit of LinkSpeedExt (FDR, EDR, HDR, NDR); of each 66 bits 64 are data."""

_IS_SM = 1 << 1

_NODE_INFO = Struct(">BBBBQQQHHIB")
_PORT_LIDS = Struct(">HH")


@dataclass(frozen=True)
class NodeInfo:
    """A node, as seen by one of its ports.

    Attributes:
        kind: `NodeType`, or another number.
        ports: how many it has; of a switch without port 0.
        system_guid, guid, port_guid: of the system, the node, and the port that was asked.
        local_port: the port by which the request came in.
    """

    kind: int
    ports: int
    system_guid: int
    guid: int
    port_guid: int
    device: int
    local_port: int


@dataclass(frozen=True)
class PortInfo:
    """A port.

    Attributes:
        lid, lmc: it owns the 2^lmc LIDs from `lid` on; 0 of a switch's ports but port 0.
        sm_lid: of the subnet manager.
        state: `PortState`, or another number.
        is_linked: whether the far end is there.
        width: lanes in use; 0 for unknown.
        lane_bps: what each carries, encoding taken off; 0 for unknown.
        widest, fastest_bps: what the port could, of its own.
        prefix: of the subnet.
        is_sm: whether a subnet manager runs behind it.
    """

    lid: int
    lmc: int
    sm_lid: int
    state: int
    is_linked: bool
    width: int
    lane_bps: int
    widest: int
    fastest_bps: int
    prefix: int = 0
    is_sm: bool = False

    @property
    def rate_bps(self) -> int:
        """Of all lanes."""
        return self.width * self.lane_bps


def ask_node(to: tuple[int, ...]) -> Request:
    """For `read_node`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.NODE_INFO, 0, to)


def ask_name(to: tuple[int, ...]) -> Request:
    """For `read_name`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.NODE_DESCRIPTION, 0, to)


def ask_port(to: tuple[int, ...], port: int) -> Request:
    """For `read_port`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.PORT_INFO, port, to)


def ask_switch(to: tuple[int, ...]) -> Request:
    """For `read_linear_top`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.SWITCH_INFO, 0, to)


def ask_forwarding(to: tuple[int, ...], block: int) -> Request:
    """For `read_forwarding`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.LINEAR_FORWARDING_TABLE, block, to)


def ask_manager(to: tuple[int, ...]) -> Request:
    """For `read_manager`."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.SM_INFO, 0, to)


def read_manager(data: bytes) -> int:
    """SMInfo (14.2.5.13): the `ManagerState`, or another number."""
    return data[20] & 15


def ask_partitions(to: tuple[int, ...], block: int) -> Request:
    """For `read_partitions`: of the port of a host that a direct route ends at."""
    return Request(MadClass.SUBNET_DIRECT, Attribute.PARTITION_TABLE, block, to)


def read_partitions(data: bytes) -> NDArray[np.uint16]:
    """P_KeyTable (14.2.5.7): a block of a port's P_Keys, 0 for none, shape (32,)."""
    return np.frombuffer(data, ">u2", KEYS_A_BLOCK).astype(np.uint16)


def read_node(data: bytes) -> NodeInfo:
    """NodeInfo (14.2.5.3)."""
    _, _, kind, ports, system_guid, guid, port_guid, _, device, _, local_port = _NODE_INFO.unpack_from(data)
    return NodeInfo(kind, ports, system_guid, guid, port_guid, device, local_port)


def read_name(data: bytes) -> str:
    """NodeDescription (14.2.5.2): up to 64 bytes of UTF-8; what cannot be shown becomes `?`."""
    text = data[:NAME_BYTES].split(b"\0", 1)[0].decode(errors="replace")
    return "".join(one if one.isprintable() and one != "\ufffd" else "?" for one in text).strip()


def read_port(data: bytes) -> PortInfo:
    """PortInfo (14.2.5.6)."""
    lid, sm_lid = _PORT_LIDS.unpack_from(data, 16)
    speed, extended = data[35] >> 4, data[62] >> 4
    return PortInfo(
        lid=lid,
        lmc=data[34] & 7,
        sm_lid=sm_lid,
        state=data[32] & 15,
        is_linked=data[33] >> 4 == PHYSICAL_LINK_UP,
        width=WIDTHS.get(data[31], 0),
        lane_bps=_extended_bps(extended) if extended else LANE_BPS.get(speed, 0) * 8 // 10,
        widest=max((lanes for bit, lanes in WIDTHS.items() if data[30] & bit), default=0),
        fastest_bps=_fastest_bps(data[32] >> 4, data[62] & 15),
        prefix=int.from_bytes(data[8:16]),
        is_sm=bool(int.from_bytes(data[20:24]) & _IS_SM),
    )


def _extended_bps(bit: int) -> int:
    return EXTENDED_LANE_BPS.get(bit, 0) * 64 // 66


def _fastest_bps(speeds: int, extended: int) -> int:
    """Of the bits of all that a port can do."""
    if extended:
        return _extended_bps(1 << (extended.bit_length() - 1))
    return max((bps * 8 // 10 for bit, bps in LANE_BPS.items() if speeds & bit), default=0)


def read_linear_top(data: bytes) -> int:
    """SwitchInfo (14.2.5.4): the highest LID in the linear forwarding table."""
    return int.from_bytes(data[6:8])


def read_forwarding(data: bytes) -> NDArray[np.uint8]:
    """LinearForwardingTable (14.2.5.10): the port for each LID of a block, `NO_ROUTE` for none, shape (64,)."""
    return np.frombuffer(data, np.uint8, LIDS_A_BLOCK)
