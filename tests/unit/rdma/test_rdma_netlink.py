"""RDMA netlink: messages as the kernel lays them out, and what is asked of it."""

import errno
import socket
import struct
from typing import Self

import pytest

from cwdp.errors import RdmaError
from cwdp.rdma import netlink
from cwdp.rdma.netlink import BoundCounter, QueuePair

NLMSG_DONE = 3
NLMSG_ERROR = 2
NESTED = 0x8000


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 0, 0) + body


def nldev(command: int, body: bytes) -> bytes:
    return message(5 << 10 | command, body)


DONE = message(NLMSG_DONE, struct.pack("=i", 0))
DEVICE = u32(1, 0) + text(2, "mlx5_0")
GSI = (
    u32(3, 1)
    + u32(21, 1)
    + u32(24, 0)
    + attribute(26, b"\x01")
    + attribute(27, b"\x03")
    + text(29, "ib_core")
)
RC = (
    u32(3, 1)
    + u32(21, 0x11)
    + u32(22, 0x2A)
    + u32(23, 700)
    + u32(24, 900)
    + attribute(25, b"\x00")
    + attribute(26, b"\x02")
    + attribute(27, b"\x03")
    + u32(28, 4711)
)
QUEUE_PAIRS = nldev(
    10, DEVICE + attribute(19 | NESTED, attribute(20 | NESTED, GSI) + attribute(20 | NESTED, RC))
)


class Kernel:
    """A socket that answers each command with what was laid down for it."""

    def __init__(self, answers: dict[int, list[bytes]]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self._next: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, data: bytes) -> None:
        self.requests.append(bytes(data))
        self._next = list(self.answers[struct.unpack_from("=IH", data)[1] & 0x3FF])

    def recv(self, _: int) -> bytes:
        return self._next.pop(0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel({1: [nldev(1, DEVICE), DONE]})
    monkeypatch.setattr(netlink, "_open", lambda: made)
    return made


def test_queue_pairs_and_their_owners(kernel: Kernel) -> None:
    kernel.answers[10] = [QUEUE_PAIRS + DONE]
    assert netlink.queue_pairs() == [
        QueuePair("mlx5_0", 1, 1, None, "GSI", "RTS", 0, None, None, None, "ib_core"),
        QueuePair("mlx5_0", 1, 0x11, 0x2A, "RC", "RTS", 900, 700, "MIGRATED", 4711, None),
    ]
    asked = kernel.requests[-1]
    assert attribute(1, struct.pack("=I", 0)) in asked
    assert struct.unpack_from("=H", asked, 6)[0] & 0x301 == 0x301  # NLM_F_REQUEST | NLM_F_DUMP


def u64(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=Q", value))


def counter_entry(lqpns: list[int], values: dict[str, int]) -> bytes:
    """As fill_stat_counter_qps and fill_stat_counter_hwcounters of the kernel write it."""
    bound = b"".join(attribute(20 | NESTED, u32(21, lqpn)) for lqpn in lqpns)
    numbers = b"".join(attribute(81 | NESTED, text(82, name) + u64(83, n)) for name, n in values.items())
    body = u32(3, 1) + u32(79, 4) + u32(28, 4711) + u32(74, 2) + attribute(19 | NESTED, bound)
    return attribute(78 | NESTED, body + attribute(80 | NESTED, numbers))


def test_counters_that_queue_pairs_are_bound_to(kernel: Kernel) -> None:
    many = {"rdma_tx_bytes": 1 << 40, "out_of_sequence": 3}
    table = attribute(77 | NESTED, counter_entry([0x11, 0x12], many) + counter_entry([0x13], {}))
    kernel.answers[17] = [nldev(17, DEVICE + table), nldev(17, DEVICE), DONE]
    assert netlink.bound_counters() == [
        BoundCounter("mlx5_0", (0x11, 0x12), many), BoundCounter("mlx5_0", (0x13,), {}),
    ]  # fmt: skip
    asked = kernel.requests[-1]
    assert u32(1, 0) in asked
    assert u32(75, 19) in asked


def test_a_device_without_queue_pairs(kernel: Kernel) -> None:
    kernel.answers[10] = [nldev(10, DEVICE), DONE]
    assert netlink.queue_pairs() == []


def test_numbers_without_a_name_are_shown(kernel: Kernel) -> None:
    odd = u32(21, 5) + attribute(26, b"\x77") + attribute(27, b"\x09")
    kernel.answers[10] = [nldev(10, DEVICE + attribute(19, attribute(20, odd))), DONE]
    (found,) = netlink.queue_pairs()
    assert (found.type, found.state, found.pid) == ("type 119", "9", None)


def test_drivers(kernel: Kernel) -> None:
    acknowledged = message(NLMSG_ERROR, struct.pack("=i", 0) + bytes(16))
    kernel.answers[15] = [nldev(15, DEVICE + u32(73, 1)), acknowledged]
    assert netlink.drivers() == {"mlx5_0": "mlx5"}
    assert text(69, "uverbs") in kernel.requests[-1]


def test_a_refusal_is_said(kernel: Kernel) -> None:
    kernel.answers[10] = [message(NLMSG_ERROR, struct.pack("=i", -errno.EPERM) + bytes(16))]
    with pytest.raises(RdmaError, match="Operation not permitted"):
        netlink.queue_pairs()


def test_a_kernel_without_rdma_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(RdmaError, match="no RDMA") as caught:
        netlink.queue_pairs()
    assert "modprobe" in caught.value.hint
