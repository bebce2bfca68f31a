"""libibumad by ctypes: management datagrams (MADs) sent and received, of which all ask and none sets.

The layout of a datagram: IBTA Architecture Specification, volume 1, 13.4.2 (header) and 14.2.1 (direct routes). What the kernel has
before it: Linux, include/uapi/rdma/ib_user_mad.h. libibumad opens devices and registers; datagrams go through the file that
it opened, as a call of it for each of them costs more than the kernel does.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.errors import RdmaError

MAD_BYTES, DATA_AT = 256, 64
"""Where the data of a subnet management or performance attribute begins."""

DATA_BYTES = MAD_BYTES - DATA_AT

METHOD_GET, METHOD_GET_RESPONSE = 0x01, 0x81
MOST_HOPS = 63
PERMISSIVE_LID = 0xFFFF
NO_ANSWER = -1
"""Instead of a status: nothing came back."""

_PATH_AT = 128
_STATUS_BITS = 0x7FFF
"""All but the direction of a direct route."""

_NO_VERSION_OF_RMPP = 0
_NOTHING_YET = (errno.EAGAIN, 0)
"""What a read fails with while nothing is there; the library of ibsim sets no errno."""


class MadClass(IntEnum):
    """Management classes (IBTA 13.4.4)."""

    PERFORMANCE = 0x04
    SUBNET_DIRECT = 0x81


CLASS_VERSION = 1
QP1, QP1_QKEY = 1, 0x80010000


@dataclass(frozen=True)
class Request:
    """An attribute that is asked for.

    Attributes:
        kind: its class.
        attribute, modifier: which.
        to: ports to leave by, from this host on, for a direct route; else the LID.
        data: of the request, where a port is selected.
    """

    kind: MadClass
    attribute: int
    modifier: int
    to: tuple[int, ...] | int
    data: bytes = b""

    def packed(self) -> bytes:
        """The datagram; the number of its transaction is 0."""
        mad = bytearray(MAD_BYTES)
        hops = len(self.to) if isinstance(self.to, tuple) else 0
        mad[0:4] = bytes((1, self.kind, CLASS_VERSION, METHOD_GET))
        mad[7] = hops
        mad[16:18] = self.attribute.to_bytes(2)
        mad[20:24] = self.modifier.to_bytes(4)
        if isinstance(self.to, tuple):
            mad[32:36] = PERMISSIVE_LID.to_bytes(2) * 2
            mad[_PATH_AT + 1 : _PATH_AT + 1 + hops] = bytes(self.to)
        mad[DATA_AT : DATA_AT + len(self.data)] = self.data
        return bytes(mad)

    @property
    def lid(self) -> int:
        """Where it is sent."""
        return self.to if isinstance(self.to, int) else PERMISSIVE_LID


class Prepared:
    """Requests that can be sent as often as one likes.

    Args:
        rows: one each, dtype `row_of`, shape (requests,).
    """

    def __init__(self, rows: NDArray[np.void]) -> None:
        self.rows = rows
        self.bytes = rows.view(np.uint8).data

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Answers:
    """What came back.

    Attributes:
        numbers: of the transactions, as far as they are ours (32 bits), int64, shape (answers,).
        statuses: of the datagrams, 0 if all is well, `NO_ANSWER` for requests that come back unanswered, int32, shape (answers,).
        data: from `DATA_AT` on, uint8, shape (answers, `DATA_BYTES`).
    """

    numbers: NDArray[np.int64]
    statuses: NDArray[np.int32]
    data: NDArray[np.uint8]


class Umad:
    """A port of an InfiniBand device, open for asking; as a context.

    Args:
        device: its name; the first with an active port unless given.
        port: of the device; 0 for the first active one.

    Raises:
        RdmaError: there is none, or it may not be opened.
    """

    def __init__(self, device: str = "", port: int = 0) -> None:
        self._lib = library()
        self._port = self._lib.umad_open_port(device.encode() or None, port)
        if self._port < 0:
            raise _cannot_open(device, -self._port)
        self._file: int = self._lib.umad_get_fd(self._port)
        self._row = row_of(self._lib.umad_size())
        self._agents: dict[MadClass, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for agent in self._agents.values():
            self._lib.umad_unregister(self._port, agent)
        self._lib.umad_close_port(self._port)

    def prepare(self, requests: Sequence[Request], timeout_ms: int) -> Prepared:
        """Have requests ready to be sent; each comes back unanswered after so long.

        Raises:
            RdmaError: nobody may ask so.
        """
        rows = np.zeros(len(requests), self._row)
        rows["timeout_ms"] = timeout_ms
        rows["agent"] = [self._agent(one.kind) for one in requests]
        is_general = np.array([one.kind is MadClass.PERFORMANCE for one in requests], bool)
        rows["qp"], rows["qkey"] = is_general * QP1, is_general * QP1_QKEY
        rows["lid"] = [one.lid for one in requests]
        packed = b"".join(one.packed() for one in requests)
        rows["mad"] = np.frombuffer(packed, np.uint8).reshape(-1, MAD_BYTES)
        return Prepared(rows)

    def send(self, made: Prepared, places: NDArray[np.intp], number: int) -> None:
        """Ask.

        Args:
            made: requests.
            places: which of them, shape (sent,).
            number: of the first's transaction, 32 bits, the others' follow; no other that is under way has one of these.

        Raises:
            RdmaError: it cannot be sent.
        """
        made.rows["number"][places] = np.arange(number, number + len(places))
        rows, size = made.bytes, self._row.itemsize
        try:
            for at in (places * size).tolist():
                os.write(self._file, rows[at : at + size])
        except OSError as error:
            raise RdmaError(
                f"a management datagram cannot be sent: errno {error.errno}", "see `ibstat`"
            ) from error

    def receive(self, least: int, most: int, timeout_ms: int) -> Answers:
        """What has come back, so many at most; waits until so many have at least, while none takes longer than the timeout.

        Raises:
            RdmaError: the device is gone.
        """
        came: list[bytes] = []
        while len(came) < least:
            failed = self._lib.umad_poll(self._port, timeout_ms)
            if failed == -errno.ETIMEDOUT:
                break
            if failed:
                raise _cannot_receive(-failed)
            self._read(came, most)
        return answers_of(came, self._row)

    def _read(self, came: list[bytes], most: int) -> None:
        """Take what is there, until there are so many."""
        try:
            while len(came) < most:
                came.append(os.read(self._file, self._row.itemsize))
        except OSError as error:
            if error.errno not in _NOTHING_YET:
                raise _cannot_receive(error.errno) from error

    def _agent(self, kind: MadClass) -> int:
        if kind not in self._agents:
            agent = self._lib.umad_register(self._port, kind, CLASS_VERSION, _NO_VERSION_OF_RMPP, None)
            if agent < 0:
                raise RdmaError(
                    f"the kernel lets nobody ask by class {kind:#04x}: errno {-agent}", "run it as root"
                )
            self._agents[kind] = agent
        return self._agents[kind]


def answers_of(came: Sequence[bytes], row: np.dtype[np.void]) -> Answers:
    """What datagrams say as the kernel gives them (`row_of`); those of another size are none."""
    rows = np.frombuffer(b"".join(one for one in came if len(one) == row.itemsize), row)
    is_answer = (rows["status"] == 0) & (rows["method"] == METHOD_GET_RESPONSE)
    statuses = np.where(is_answer, rows["mad_status"].astype(np.int32) & _STATUS_BITS, NO_ANSWER)
    return Answers(rows["number"].astype(np.int64), statuses, rows["mad"][:, DATA_AT:])


def row_of(header_bytes: int) -> np.dtype[np.void]:
    """A datagram as the kernel takes and gives it, behind what it has before it; the lower half of a transaction's number is ours."""
    fields: dict[str, tuple[object, int]] = {
        "agent": ("=u4", 0),
        "status": ("=u4", 4),
        "timeout_ms": ("=u4", 8),
        "qp": (">u4", 20),
        "qkey": (">u4", 24),
        "lid": (">u2", 28),
        "mad": ((np.uint8, MAD_BYTES), header_bytes),
        "method": ("u1", header_bytes + 3),
        "mad_status": (">u2", header_bytes + 4),
        "number": (">u4", header_bytes + 12),
    }
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(formats),
            "offsets": list(offsets),
            "itemsize": header_bytes + MAD_BYTES,
        }
    )


@cache
def library() -> ctypes.CDLL:
    """Libibumad.

    Raises:
        RdmaError: it is not installed.
    """
    name = find_library("ibumad")
    if name is None:
        raise RdmaError("libibumad is not installed", "install it (Debian: libibumad3)")
    lib = ctypes.CDLL(name)
    buffer, number = ctypes.c_void_p, ctypes.c_int
    signatures: dict[str, tuple[type | None, Sequence[type]]] = {
        "umad_init": (number, ()),
        "umad_size": (ctypes.c_size_t, ()),
        "umad_open_port": (number, (ctypes.c_char_p, number)),
        "umad_close_port": (number, (number,)),
        "umad_register": (number, (number, number, number, ctypes.c_uint8, buffer)),
        "umad_unregister": (number, (number, number)),
        "umad_get_fd": (number, (number,)),
        "umad_poll": (number, (number, number)),
    }
    for function, (result, arguments) in signatures.items():
        getattr(lib, function).restype = result
        getattr(lib, function).argtypes = list(arguments)
    lib.umad_init()
    return lib


def _cannot_receive(error: int | None) -> RdmaError:
    return RdmaError(f"no management datagram can be received: errno {error}", "see `ibstat`")


def _cannot_open(device: str, error: int) -> RdmaError:
    if error == errno.EACCES:
        return RdmaError("this user may not send management datagrams", "run it as root")
    which = f"the device {device}" if device else "an InfiniBand device with an active port"
    return RdmaError(
        f"{which} cannot be opened for management: errno {error}",
        "load the kernel module ib_umad; `ibstat` shows devices and ports",
    )
