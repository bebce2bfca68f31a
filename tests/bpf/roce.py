"""RoCEv2 packets, made and judged by scapy: what the programs are fed, and what steering must make of them."""

import struct
from typing import Any
from zlib import crc32

from probes import SPORT, link, network, rebuilt
from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from cwdp.dataplane import abi

QPN, PSN = 0x12AB34, 0xFFFF80
ICRC_BYTES = 4
IP_AT, UDP_AT = 14, {4: 34, 6: 54}
FLOW_LABEL_BITS = 0x3FFF

RC, UC, RD, UD, XRC = 0x00, 0x20, 0x40, 0x60, 0xA0
IMM, RETH, AETH_BYTES, ATOMIC, ATOMIC_ACK = 4, 16, 4, 28, 8

# IBTA table 38: operation and the bytes of its own extended headers.
SENDS = {
    "SEND_FIRST": (0x00, 0),
    "SEND_MIDDLE": (0x01, 0),
    "SEND_LAST": (0x02, 0),
    "SEND_LAST_IMM": (0x03, IMM),
}
ONLY_SENDS = {"SEND_ONLY": (0x04, 0), "SEND_ONLY_IMM": (0x05, IMM)}
WRITES = {
    "WRITE_FIRST": (0x06, RETH),
    "WRITE_MIDDLE": (0x07, 0),
    "WRITE_LAST": (0x08, 0),
    "WRITE_LAST_IMM": (0x09, IMM),
    "WRITE_ONLY": (0x0A, RETH),
    "WRITE_ONLY_IMM": (0x0B, RETH + IMM),
}
READ_REQUEST = {"READ_REQUEST": (0x0C, RETH)}
RESPONSES = {
    "READ_RESPONSE_FIRST": (0x0D, AETH_BYTES),
    "READ_RESPONSE_MIDDLE": (0x0E, 0),
    "READ_RESPONSE_LAST": (0x0F, AETH_BYTES),
    "READ_RESPONSE_ONLY": (0x10, AETH_BYTES),
    "ACKNOWLEDGE": (0x11, AETH_BYTES),
    "ATOMIC_ACKNOWLEDGE": (0x12, AETH_BYTES + ATOMIC_ACK),
}
ATOMICS = {"COMPARE_SWAP": (0x13, ATOMIC), "FETCH_ADD": (0x14, ATOMIC)}
INVALIDATES = {"SEND_LAST_INVALIDATE": (0x16, 4), "SEND_ONLY_INVALIDATE": (0x17, 4)}
RELIABLE = SENDS | ONLY_SENDS | WRITES | READ_REQUEST | RESPONSES | ATOMICS | INVALIDATES
TRANSPORTS = {
    "RC": (RC, 0, RELIABLE),
    "UC": (UC, 0, SENDS | ONLY_SENDS | WRITES),
    "UD": (UD, 8, ONLY_SENDS),
    "XRC": (XRC, 4, RELIABLE),
}
OPCODES = {
    f"{name}_{operation}": (transport | number, before + behind)
    for name, (transport, before, operations) in TRANSPORTS.items()
    for operation, (number, behind) in operations.items()
}
"""Every opcode with the bytes of extended headers behind its BTH."""


def opcode(name: str) -> int:
    """The number of an opcode."""
    return OPCODES[name][0]


def data(
    name: str = "RC_SEND_ONLY",
    payload: int = 64,
    *,
    ip_version: int = 4,
    vlans: int = 0,
    sport: int = SPORT,
    checksum: bool = False,
    dst: str | None = None,
    **bth: Any,
) -> Packet:
    """A packet of an opcode with `payload` bytes, padded to words as senders do, with its ICRC."""
    number, extended = OPCODES[name]
    pad = -payload % 4
    fields = {"opcode": number, "dqpn": QPN, "psn": PSN, "padcount": pad} | bth
    body = bytes(n * 7 & 0xFF for n in range(extended + payload)) + bytes(pad)
    udp = UDP(sport=sport, dport=abi.ROCE_PORT, chksum=None if checksum else 0)
    ip = network(ip_version)
    ip.dst = dst or ip.dst
    return rebuilt(link(vlans) / ip / udp / BTH(**fields) / Raw(body))


def acknowledge(syndrome: int = 0, *, dqpn: int = QPN, psn: int = PSN) -> Packet:
    """An acknowledgement, positive or not by its syndrome."""
    bth = BTH(opcode=opcode("RC_ACKNOWLEDGE"), dqpn=dqpn, psn=psn)
    return _over_ip(bth / AETH(syndrome=syndrome, msn=1))


def headers_only(name: str) -> Packet:
    """A packet that ends with its BTH."""
    packet = data(name, payload=0)
    behind = len(packet[BTH].payload) + ICRC_BYTES
    return Ether(bytes(packet)[:-behind])


def congestion_notification(dqpn: int = QPN) -> Packet:
    """A CNP."""
    return _over_ip(cnp(dqpn))


def _over_ip(bth: Packet) -> Packet:
    return rebuilt(link() / network() / UDP(sport=SPORT, dport=abi.ROCE_PORT, chksum=0) / bth)


def steered(packet: Packet, sport: int, *, flow_label: bool = False) -> bytes:
    """What the packet must be when it leaves from another source port, by scapy."""
    out = packet.copy()
    out[UDP].sport = sport
    if out[UDP].chksum:
        del out[UDP].chksum
    if flow_label:
        out[IPv6].fl = sport & FLOW_LABEL_BITS
    out[BTH].icrc = None
    return bytes(out)


def plain(payload: int, ip_version: int = 4) -> bytes:
    """What `data` makes of no other arguments, without scapy: for tests over thousands of lengths."""
    head = bytearray(_EMPTY[ip_version])
    udp = UDP_AT[ip_version]
    pad = -payload % 4
    udp_length = len(head) - udp + payload + pad + ICRC_BYTES
    struct.pack_into(">H", head, udp + 4, udp_length)
    head[udp + 9] |= pad << 4
    if ip_version == 4:
        struct.pack_into(">HHHBBH", head, IP_AT + 2, udp_length + 20, 7, 0, 63, 17, 0)
        struct.pack_into(">H", head, IP_AT + 10, 0xFFFF - int.from_bytes(head[IP_AT:udp], "big") % 0xFFFF)
    else:
        struct.pack_into(">H", head, IP_AT + 4, udp_length)
    body = (_PATTERN * (payload // len(_PATTERN) + 1))[:payload] + bytes(pad)
    return bytes(head) + body + icrc(bytes(head[IP_AT:]) + body)


def from_port(frame: bytes, ip_version: int, sport: int) -> bytes:
    """What `steered` makes of a frame without tags and checksum, without scapy."""
    out = bytearray(frame)
    struct.pack_into(">H", out, UDP_AT[ip_version], sport)
    out[-ICRC_BYTES:] = icrc(bytes(out[IP_AT:-ICRC_BYTES]))
    return bytes(out)


def icrc(datagram: bytes) -> bytes:
    """The ICRC (IBTA A17.3.3) of an IP packet without options, which ends where the ICRC is to begin."""
    masked = bytearray(datagram)
    if datagram[0] >> 4 == 4:
        udp = 20
        masked[1] = masked[8] = 0xFF
        masked[10:12] = b"\xff\xff"
    else:
        udp = 40
        masked[0:4] = struct.pack(">I", struct.unpack_from(">I", masked)[0] | 0x0FFFFFFF)
        masked[7] = 0xFF
    masked[udp + 6 : udp + 8] = b"\xff\xff"
    masked[udp + 12] = 0xFF
    return struct.pack("<I", crc32(b"\xff" * 8 + masked))


_PATTERN = bytes(n * 7 & 0xFF for n in range(256))
_EMPTY = {version: bytes(data(payload=0, ip_version=version))[:-ICRC_BYTES] for version in (4, 6)}
