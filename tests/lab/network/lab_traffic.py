"""Small packets and traceroutes between the hosts of a lab."""

import socket
import struct
import time
from contextlib import ExitStack

from tools.lab import Host, Nic, netns_enter

SINK_PORT = 5000
HOP_LOOKS = 200
_RECVERR: dict[int, tuple[int, int]] = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
_HOPS: dict[int, tuple[int, int]] = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TTL),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS),
}
_SOCK_EXTENDED_ERR_BYTES = 16


def address(nic: Nic, family: int) -> str:
    return str(nic.ipv4 if family == socket.AF_INET else nic.ipv6)


def udp_socket(stack: ExitStack, host: Host, family: int, port: int, nic: int = 0) -> socket.socket:
    """Open a UDP socket on one of a host's NICs."""
    with netns_enter(host.netns):
        opened = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        opened.setsockopt(socket.SOL_SOCKET, 33, 2**24)  # SO_RCVBUFFORCE
        opened.setsockopt(socket.SOL_SOCKET, 32, 2**24)  # SO_SNDBUFFORCE
        opened.bind((address(host.nics[nic], family), port))
    return opened


def drain(receiver: socket.socket, wait_s: float = 0.2) -> list[bytes]:
    """Return all that arrives until nothing has for `wait_s`."""
    receiver.settimeout(wait_s)
    packets = []
    while True:
        try:
            packets.append(receiver.recv(65536))
        except TimeoutError:
            return packets


def send_many(source: Host, target: Host, count: int, size: int = 64) -> list[bytes]:
    """Send packets from one host to another in small batches; return those that arrived."""
    with ExitStack() as stack:
        receiver = udp_socket(stack, target, socket.AF_INET, SINK_PORT)
        sender = udp_socket(stack, source, socket.AF_INET, 0)
        for number in range(count):
            sender.sendto(number.to_bytes(4, "big").ljust(size, b"\0"), (str(target.nics[0].ipv4), SINK_PORT))
            if number % 100 == 99:
                time.sleep(0.002)
        return drain(receiver)


def hop(source: Host, target: Host, family: int, source_port: int, hops: int) -> str | None:
    """Return the address that answers for the `hops`-th hop of a flow, None if none does in time."""
    with ExitStack() as stack:
        sender = udp_socket(stack, source, family, source_port)
        sender.setsockopt(*_RECVERR[family], 1)
        sender.setsockopt(*_HOPS[family], hops)
        sender.sendto(b"probe", (address(target.nics[0], family), SINK_PORT))
        for _ in range(HOP_LOOKS):  # not a time: while the machine stands still, no answer comes either
            try:
                _, ancillary, _, _ = sender.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                time.sleep(0.001)
                continue
            return _offender(ancillary[0][2], family)
        return None


def _offender(error: bytes, family: int) -> str:
    """Read the address behind a `struct sock_extended_err`."""
    sockaddr = error[_SOCK_EXTENDED_ERR_BYTES:]
    start, length = (4, 4) if family == socket.AF_INET else (8, 16)
    assert struct.unpack("=H", sockaddr[:2])[0] == family
    return socket.inet_ntop(family, sockaddr[start : start + length])
