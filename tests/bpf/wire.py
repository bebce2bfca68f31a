"""Real packets through the dataplane of one end of a veth, in buffers of any shape, and as they come out."""

import socket
import struct
from dataclasses import dataclass

from machine import Machine
from probes import addresses
from pyroute2 import IPRoute
from scapy.layers.inet import UDP
from scapy.packet import Packet
from waiting import WAIT_S

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_NO_CHECK = 11
NO_DUPLICATE_DETECTION = 0x02
LONGEST = 16_384
MTU = 9_216
ROCE_PORT = 4791
UDP_PROTOCOL = 17
VLAN_TYPES = (b"\x81\x00", b"\x88\xa8")


@dataclass(frozen=True)
class Shape:
    """How the kernel is to build a buffer, by the header of virtio-net (virtio 1.2, 5.1.6).

    Attributes:
        linear: bytes that do not lie in page fragments; the kernel heeds it for frames longer than a page.
        checksum_at: where the UDP header begins whose checksum is left to the device.
        gso_bytes: payload of each of the datagrams that the frame is to be cut into.
    """

    linear: int = 0
    checksum_at: int | None = None
    gso_bytes: int = 0

    def header(self) -> bytes:
        """`struct virtio_net_hdr`."""
        needs_checksum, udp_check_offset, gso_udp_l4 = 1, 6, 5
        flags = 0 if self.checksum_at is None else needs_checksum
        gso_type = gso_udp_l4 if self.gso_bytes else 0
        start, offset = (0, 0) if self.checksum_at is None else (self.checksum_at, udp_check_offset)
        return struct.pack("=BBHHHH", flags, gso_type, self.linear, self.gso_bytes, start, offset)


class Wire:
    """Frames in at roce0, past its tc egress, and out at far0."""

    def __init__(self, dataplane: Machine) -> None:
        self._dataplane = dataplane
        with dataplane.namespace.entered():
            with IPRoute() as ip:
                for name in ("roce0", "far0"):
                    ip.link("set", index=ip.link_lookup(ifname=name)[0], mtu=MTU)
            self._near = _packet_socket("roce0")
            self._near.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            self._far = _packet_socket("far0")
            self._far.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            self._far.settimeout(WAIT_S)

    def close(self) -> None:
        self._near.close()
        self._far.close()

    def carry(self, frame: bytes, shape: Shape | None = None) -> bytes:
        """The frame as it comes out."""
        header = (shape or Shape()).header()
        assert self._near.send(header + frame) == len(header) + len(frame)
        return self.received()

    def received(self) -> bytes:
        """The next RoCEv2 frame that comes out; the host's own chatter is passed over."""
        while True:
            frame = self._far.recv(LONGEST)
            if ROCE_PORT.to_bytes(2, "big") in frame[36:66]:
                return frame

    def give_route(self, source: str, destination: str) -> None:
        """Have packets to an address leave by roce0."""
        with self._dataplane.namespace.entered(), IPRoute() as ip:
            index = ip.link_lookup(ifname="roce0")[0]
            ip.addr("replace", index=index, address=source, prefixlen=8, flags=NO_DUPLICATE_DETECTION)
            ip.neigh("replace", dst=destination, lladdr="02:00:00:00:00:02", ifindex=index, state="permanent")

    def udp_socket(self, source: str, destination: str) -> socket.socket:
        """A socket of the host's stack, without UDP checksums, that sends from roce0 to an address behind far0."""
        self.give_route(source, destination)
        with self._dataplane.namespace.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        made.bind((source, 0))
        made.connect((destination, ROCE_PORT))
        return made


def received_form(frame: bytes) -> bytes:
    """A frame as packet sockets show it: the receiving stack takes the outer VLAN tag off."""
    return frame[:12] + frame[16:] if frame[12:14] in VLAN_TYPES else frame


def pseudo_header_sum(packet: Packet) -> int:
    """What a sender leaves in the place of a checksum, as a sum modulo 2^16 - 1."""
    return (int.from_bytes(addresses(packet), "big") + UDP_PROTOCOL + packet[UDP].len) % 0xFFFF


def _packet_socket(ifname: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.bind((ifname, ETH_P_ALL))
    return made
