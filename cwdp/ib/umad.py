"""libibumad by ctypes: management datagrams (MADs) sent and received, of which all ask and none sets.

The layout of a datagram: IBTA Architecture Specification, volume 1, 13.4.2 (header) and 14.2.1 (direct routes).
"""

import ctypes
import errno
from collections.abc import Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from struct import Struct
from types import TracebackType
from typing import Self

from cwdp.errors import RdmaError

MAD_BYTES, DATA_AT = 256, 64
"""Where the data of a subnet management or performance attribute begins."""

METHOD_GET, METHOD_GET_RESPONSE = 0x01, 0x81
MOST_HOPS = 63
PERMISSIVE_LID = 0xFFFF

_PATH_AT, _TRANSACTION_AT = 128, 8
_TRANSACTION = Struct(">Q")
_STATUS_BITS = 0x7FFF
"""All but the direction of a direct route."""

_NO_VERSION_OF_RMPP = 0


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

    Attributes:
        buffer: one after the other, each as libibumad wants it.
        at: where it is.
        stride: bytes of each.
        agents: by which each is sent.
    """

    def __init__(self, count: int, stride: int) -> None:
        self.buffer, self.stride = bytearray(count * stride), stride
        self.at = _address(self.buffer) if count else 0
        self.agents: list[int] = []


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        number: the transaction's.
        status: of the datagram, 0 if all is well; None where nothing came back.
        data: from `DATA_AT` on.
    """

    number: int
    status: int | None
    data: bytes


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
        self._header_bytes: int = self._lib.umad_size()
        self._agents: dict[MadClass, int] = {}
        self._in = bytearray(self._header_bytes + MAD_BYTES)
        self._in_at = _address(self._in)

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

    def prepare(self, requests: Sequence[Request]) -> Prepared:
        """Have requests ready to be sent.

        Raises:
            RdmaError: nobody may ask so.
        """
        header = self._header_bytes
        made = Prepared(len(requests), header + MAD_BYTES)
        for place, request in enumerate(requests):
            at = place * made.stride
            qp, qkey = (QP1, QP1_QKEY) if request.kind is MadClass.PERFORMANCE else (0, 0)
            self._lib.umad_set_addr(made.at + at, request.lid, qp, 0, qkey)
            made.buffer[at + header : at + made.stride] = request.packed()
            made.agents.append(self._agent(request.kind))
        return made

    def send(self, made: Prepared, place: int, number: int, timeout_ms: int) -> None:
        """Ask.

        Args:
            made: requests.
            place: which of them.
            number: of the transaction, 32 bits; no other that is under way has it.
            timeout_ms: after which it comes back unanswered.

        Raises:
            RdmaError: it cannot be sent.
        """
        at = place * made.stride
        _TRANSACTION.pack_into(made.buffer, at + self._header_bytes + _TRANSACTION_AT, number)
        failed = self._lib.umad_send(self._port, made.agents[place], made.at + at, MAD_BYTES, timeout_ms, 0)
        if failed:
            raise RdmaError(f"a management datagram cannot be sent: errno {-failed}", "see `ibstat`")

    def receive(self, timeout_ms: int) -> Answer | None:
        """The next that comes back; None where none does within so long.

        Raises:
            RdmaError: the device is gone.
        """
        length = ctypes.c_int(MAD_BYTES)
        got = self._lib.umad_recv(self._port, self._in_at, ctypes.byref(length), timeout_ms)
        if got in (-errno.ETIMEDOUT, -errno.EWOULDBLOCK):
            return None
        if got < 0:
            raise RdmaError(f"no management datagram can be received: errno {-got}", "see `ibstat`")
        mad = bytes(self._in[self._header_bytes :])
        number = int.from_bytes(mad[8:16])
        if self._lib.umad_status(self._in_at) or mad[3] != METHOD_GET_RESPONSE:
            return Answer(number, None, b"")
        return Answer(number, int.from_bytes(mad[4:6]) & _STATUS_BITS, mad[DATA_AT:])

    def _agent(self, kind: MadClass) -> int:
        if kind not in self._agents:
            agent = self._lib.umad_register(self._port, kind, CLASS_VERSION, _NO_VERSION_OF_RMPP, None)
            if agent < 0:
                raise RdmaError(
                    f"the kernel lets nobody ask by class {kind:#04x}: errno {-agent}", "run it as root"
                )
            self._agents[kind] = agent
        return self._agents[kind]


def _address(buffer: bytearray) -> int:
    """Where a buffer is, which keeps its size."""
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))


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
        "umad_set_addr": (number, (buffer, number, number, number, number)),
        "umad_send": (number, (number, number, buffer, number, number, number)),
        "umad_recv": (number, (number, buffer, ctypes.POINTER(number), number)),
        "umad_status": (number, (buffer,)),
    }
    for function, (result, arguments) in signatures.items():
        getattr(lib, function).restype = result
        getattr(lib, function).argtypes = list(arguments)
    lib.umad_init()
    return lib


def _cannot_open(device: str, error: int) -> RdmaError:
    if error == errno.EACCES:
        return RdmaError("this user may not send management datagrams", "run it as root")
    which = f"the device {device}" if device else "an InfiniBand device with an active port"
    return RdmaError(
        f"{which} cannot be opened for management: errno {error}",
        "load the kernel module ib_umad; `ibstat` shows devices and ports",
    )
