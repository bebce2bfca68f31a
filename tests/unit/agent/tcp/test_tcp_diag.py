"""What the kernel tells of TCP connections: of real ones on loopback, and of messages that it might send."""

import errno
import os
import socket
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from cwdp.agent.tcp import diag
from cwdp.shared.addresses import bytes_address


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["ipv4", "ipv6"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: who connected, who was connected to."""
    family, address = request.param
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname()[:2]) as client:
            server, _ = listener.accept()
            with server:
                yield client, server


def ports(end: socket.socket) -> tuple[int, int]:
    return end.getsockname()[1], end.getpeername()[1]


def by_ports(sockets: diag.Sockets) -> dict[tuple[int, int], np.void]:
    return {(int(row["local_port"]), int(row["remote_port"])): row for row in sockets}


def test_both_ends_of_a_connection_are_told_with_what_they_have_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = ends
    client.sendall(bytes(5_000))
    assert len(server.recv(5_000, socket.MSG_WAITALL)) == 5_000
    mine, theirs = ports(client), ports(server)
    found = by_ports(diag.read(diag.condition([(mine[1], mine[1])], [])))
    assert found.keys() == {mine, theirs}
    sent, came = found[mine], found[theirs]
    address = client.getsockname()[0]
    assert str(bytes_address(sent["local_addr"].tobytes())) == address
    assert str(bytes_address(came["remote_addr"].tobytes())) == address
    assert sent["state"] == came["state"] == diag.ESTABLISHED
    assert sent["bytes_sent"] == came["bytes_received"] == 5_000
    assert sent["inode"] == os.fstat(client.fileno()).st_ino
    assert 0 < sent["rtt_us"] < 10_000_000
    assert sent["mss"] > 500
    assert sent["cwnd"] > 0
    everything = by_ports(diag.read())
    assert everything[mine]["cookie"] == sent["cookie"]


@pytest.mark.parametrize("ends", [(socket.AF_INET, "127.0.0.1")], indirect=True, ids=["ipv4"])
def test_the_kernel_leaves_out_what_is_not_asked_for(ends: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = ports(ends[0]), ports(ends[1])
    low, high = sorted(mine)
    for wanted, is_found in (
        ([(mine[0], mine[0])], True),
        ([(1, 1), (2, 3), (low, low)], True),
        ([(high, 65_535)], True),
        ([(1, low - 1), (high + 1, 65_535)], False),
        ([(n, n) for n in range(1, 400)], False),
        ([*((n, n) for n in range(1, 400)), (low, low)], True),
    ):
        found = by_ports(diag.read(diag.condition(wanted, [])))
        assert (mine in found) == (theirs in found) == is_found, wanted


@pytest.mark.parametrize("ends", [(socket.AF_INET, "127.0.0.1")], indirect=True, ids=["ipv4"])
def test_connections_are_found_by_their_cgroup(ends: tuple[socket.socket, socket.socket]) -> None:
    mine = ports(ends[0])
    cgroup = int(by_ports(diag.read())[mine]["cgroup"])
    if not cgroup:
        pytest.skip("this kernel does not tell cgroups of sockets")
    assert mine in by_ports(diag.read(diag.condition([], [cgroup])))
    assert mine in by_ports(diag.read(diag.condition([(1, 1)], [cgroup + 1_000_000, cgroup])))
    assert mine not in by_ports(diag.read(diag.condition([], [cgroup + 1_000_000])))


@pytest.mark.parametrize("count", [0, diag.MOST_CONDITIONS // 2 + 1])
def test_there_is_a_limit_to_what_the_kernel_is_asked(count: int) -> None:
    with pytest.raises(ValueError, match=f"{2 * count} conditions"):
        diag.condition([(n, n) for n in range(count)], [])


def test_the_kernel_takes_as_many_conditions_as_may_be() -> None:
    most = diag.MOST_CONDITIONS // 2
    assert not len(diag.read(diag.condition([(1, 1)] * most, [])))


def test_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diag, "SOCK_DIAG_BY_FAMILY", 99)
    with pytest.raises(OSError, match="inet_diag"):
        diag.read()


def message(port: int, attributes: bytes, family: int = socket.AF_INET) -> bytes:
    ids = (
        struct.pack(">HH", port, 80)
        + bytes([10, 0, 0, 1]).ljust(16, b"\0")
        + bytes([10, 0, 0, 2]).ljust(16, b"\0")
    )
    body = bytes([family, diag.ESTABLISHED, 0, 0]) + ids + bytes(4 + 8 + 4 * 4) + struct.pack("=I", port)
    body += attributes
    return diag.HEADER.pack(diag.HEADER.size + len(body), diag.SOCK_DIAG_BY_FAMILY, 2, 0, 0) + body


def attribute(kind: int, content: bytes) -> bytes:
    whole = diag.ATTRIBUTE.pack(diag.ATTRIBUTE.size + len(content), kind) + content
    return whole.ljust(len(whole) + 3 & ~3, b"\0")


def info(rtt_us: int, size: int = 240) -> bytes:
    return attribute(diag.INET_DIAG_INFO, bytes(68) + struct.pack("=I", rtt_us) + bytes(size - 72))


def test_messages_whose_attributes_are_elsewhere_are_read_too() -> None:
    cgroup = attribute(diag.INET_DIAG_CGROUP_ID, struct.pack("=Q", 77))
    told = [
        message(1, info(11) + cgroup),
        message(2, cgroup + info(12)),
        message(3, info(13, 280)),
        message(4, cgroup),
        message(5, info(15) + cgroup),
    ]
    found = diag.parsed([b"".join(told[:3]), b"".join(told[3:])])
    rows = {int(row["inode"]): (int(row["rtt_us"]), int(row["cgroup"])) for row in found}
    assert rows == {1: (11, 77), 2: (12, 77), 3: (13, 0), 4: (0, 77), 5: (15, 77)}
    assert {str(bytes_address(row["remote_addr"].tobytes())) for row in found} == {"10.0.0.2"}


@pytest.mark.parametrize("size", [0, 1, 60, 200])
def test_an_older_kernels_short_answer_counts_as_none(size: int) -> None:
    (row,) = diag.parsed([message(9, attribute(diag.INET_DIAG_INFO, bytes(size)))])
    assert (row["has_info"], row["rtt_us"], row["local_port"]) == (0, 0, 9)


def test_what_is_cut_off_is_not_read() -> None:
    whole = message(1, info(5))
    rng = np.random.default_rng(1)
    for cut in range(len(whole)):
        assert not len(diag.parsed([whole[:cut]]))
    for _ in range(2_000):
        garbage = bytearray(whole * 2)
        for place in rng.integers(len(garbage), size=6):
            garbage[place] = rng.integers(256)
        diag.parsed([bytes(garbage)])


def test_errors_carry_their_number() -> None:
    body = struct.pack("=i", -errno.ENOENT) + bytes(16)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        far.send(diag.HEADER.pack(diag.HEADER.size + len(body), diag.NLMSG_ERROR, 0, 0, 0) + body)
        with pytest.raises(FileNotFoundError):
            list(diag._answers(near))
