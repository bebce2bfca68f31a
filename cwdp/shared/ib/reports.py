"""What agents tell managers of an InfiniBand subnet that they read; parts of `cwdp.shared.bus.messages`.

| kind | message | when |
| --- | --- | --- |
| `ib-subnet` | `IbSubnet` | the whole subnet, in pieces: when its structure has changed, and once in `AGAIN_S` |
| `ib-tables` | `IbTables` | forwarding tables that have changed, while nothing else has |
| `ib-growth` | `IbGrowth` | each second: by how much the ports' counters grow; also says that the reader is there |
"""

import zlib
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from cwdp.shared.bus.messages import FromAgent
from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.subnet import MOST_PACKED_BYTES, Subnet, pack

AGAIN_S = 30.0
PIECE_BYTES, MOST_PIECES = 256 * 1024, 256
MOST_ROWS = 8_192
"""Ports of one message of growth, and rows of one of tables."""

_T = TypeVar("_T", bound=Struct)

Number = Annotated[int, Meta(ge=1, le=2**53)]


class IbSubnet(FromAgent, frozen=True, kw_only=True):
    """A piece of a subnet.

    Attributes:
        number: of the reading, higher than those before; pieces of one reading share it.
        part, parts: which of how many.
        data: all together are what `cwdp.shared.ib.subnet.pack` made.
    """

    number: Number
    part: Annotated[int, Meta(ge=0, lt=MOST_PIECES)] = 0
    parts: Annotated[int, Meta(ge=1, le=MOST_PIECES)] = 1
    data: Annotated[bytes, Meta(max_length=PIECE_BYTES)]


class IbTables(FromAgent, frozen=True, kw_only=True):
    """Rows of forwarding tables that are others than in the reading before.

    Attributes:
        after: the number that they change.
        number: what the subnet's number is with them.
        data: what `pack_tables` made.
    """

    after: Number
    number: Number
    data: bytes


class IbGrowth(FromAgent, frozen=True, kw_only=True):
    """By how much counters of ports grow; what is not in it does not.

    Attributes:
        number: of the subnet whose ports these are.
        first: row of the first port that this is about; a reading with many ports takes several messages.
        ports: about so many; 0 where nothing has been read yet.
        data: what `pack_growth` made.
        trouble: why the subnet cannot be read now; "" where it can.
    """

    number: Annotated[int, Meta(ge=0, le=2**53)] = 0
    first: Annotated[int, Meta(ge=0, le=2**31)] = 0
    ports: Annotated[int, Meta(ge=0, le=MOST_ROWS)] = 0
    data: bytes = b""
    trouble: Annotated[str, Meta(max_length=400)] = ""


class _Rows(Struct, frozen=True, kw_only=True, array_like=True):
    rows: bytes
    data: bytes


class _Growth(Struct, frozen=True, kw_only=True, array_like=True):
    columns: list[Annotated[int, Meta(ge=0, lt=len(NAMES))]]
    rows: bytes
    per_s: bytes
    stuck: bytes


def subnet_pieces(host: str, number: int, subnet: Subnet) -> list[IbSubnet]:
    """A subnet for the bus.

    Raises:
        ValueError: it is larger than `MOST_PIECES`.
    """
    whole = pack(subnet)
    pieces = [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]
    if len(pieces) > MOST_PIECES:
        raise ValueError(f"{len(whole)} bytes of a subnet; {MOST_PIECES * PIECE_BYTES} are told at most")
    return [
        IbSubnet(host=host, number=number, part=i, parts=len(pieces), data=piece)
        for i, piece in enumerate(pieces)
    ]


def pack_tables(tables: NDArray[np.uint8], rows: Sequence[int]) -> bytes:
    """Some rows of the tables of a subnet, shape (switches, LIDs), for `unpack_tables`."""
    chosen = np.asarray(rows, "<u4")
    packed = _Rows(rows=chosen.tobytes(), data=tables[chosen].tobytes())
    return zlib.compress(msgspec.msgpack.encode(packed), level=1)


def unpack_tables(data: bytes, tables: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Tables with the rows that are others.

    Raises:
        ValueError: they are of other tables, or none.
    """
    packed = _unpacked(data, _Rows)
    rows = np.frombuffer(packed.rows, "<u4")
    if len(rows) and rows.max() >= len(tables):
        raise ValueError("rows of tables that are not there")
    found = tables.copy()
    found[rows] = np.frombuffer(packed.data, np.uint8).reshape(len(rows), tables.shape[1])
    return found


def pack_growth(growth: Growth) -> bytes:
    """What grows, for `unpack_growth`; a rate is told with the precision of float32."""
    grows = (growth.per_s != 0) | growth.stuck
    rows, columns = np.flatnonzero(grows.any(axis=1)), np.flatnonzero(grows.any(axis=0))
    packed = _Growth(
        columns=columns.tolist(),
        rows=rows.astype("<u4").tobytes(),
        per_s=growth.per_s[np.ix_(rows, columns)].astype("<f4").tobytes(),
        stuck=np.packbits(growth.stuck[np.ix_(rows, columns)]).tobytes(),
    )
    return zlib.compress(msgspec.msgpack.encode(packed), level=1)


def unpack_growth(data: bytes, ports: int) -> Growth:
    """Of so many ports.

    Raises:
        ValueError: it is of other ports, or none.
    """
    packed = _unpacked(data, _Growth)
    rows, columns = np.frombuffer(packed.rows, "<u4"), np.array(packed.columns, np.intp)
    if len(rows) and rows.max() >= ports:
        raise ValueError("rows of ports that are not there")
    shape = len(rows), len(columns)
    per_s, stuck = np.zeros((ports, len(NAMES))), np.zeros((ports, len(NAMES)), bool)
    per_s[np.ix_(rows, columns)] = np.frombuffer(packed.per_s, "<f4").reshape(shape)
    bits = np.unpackbits(np.frombuffer(packed.stuck, np.uint8), count=shape[0] * shape[1])
    stuck[np.ix_(rows, columns)] = bits.reshape(shape).astype(bool)
    return Growth(per_s, stuck)


def _unpacked(data: bytes, kind: type[_T]) -> _T:
    inflate = zlib.decompressobj()
    try:
        return msgspec.msgpack.decode(inflate.decompress(data, MOST_PACKED_BYTES), type=kind)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"it is no {kind.__name__}: {error}") from error
