"""TCP segments by scapy: what the programs are fed, and what they must make of it."""

from typing import Any

from probes import KEY, SOURCES, Probe, addresses, as_field, link, network, rebuilt
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6
from scapy.packet import Packet, Raw
from siphash import siphash_2_4

from cwdp.dataplane import abi
from cwdp.dataplane.steering.tcp import TcpConnection
from cwdp.shared.addresses import read_address

PORTS = (43_210, 5_201)
"""Of the connection, at the host and at its far end."""

WINDOW = abi.TCP_PROBE & 0xFFFF
TCP_PROTOCOL = 6


def connection(ip_version: int = 4, ports: tuple[int, int] = PORTS) -> TcpConnection:
    """The connection of `segment`."""
    local, remote = (read_address(text) for text in SOURCES[ip_version])
    return TcpConnection(local, remote, *ports)


def segment(
    ip_version: int = 4, vlans: int = 0, ports: tuple[int, int] = PORTS, ip: Packet | None = None, **tcp: Any
) -> Packet:
    """One with timestamps and data, its checksum right."""
    header = {"flags": "PA", "seq": 12345, "ack": 6789, "options": [("Timestamp", (1, 2))]} | tcp
    body = Raw(bytes(n & 0xFF for n in range(300)))
    head = link(vlans) / (ip if ip is not None else network(ip_version))
    return rebuilt(head / TCP(sport=ports[0], dport=ports[1], **header) / body)


def on_the_wire(packet: Packet, sport: int, *, flow_label: bool = False) -> bytes:
    """The segment as it must leave: the ports of a path, and an urgent pointer that makes up for the change."""
    out = packet.copy()
    total = out[TCP].sport + out[TCP].dport
    out[TCP].sport, out[TCP].dport = sport, abi.ROCE_PORT
    out[TCP].urgptr = (total - sport - abi.ROCE_PORT - 1) % 0xFFFF + 1
    if flow_label:
        out[IPv6].fl = sport & 0x3FFF
    return bytes(out)


def has_right_checksum(frame: Packet) -> bool:
    """Whether scapy finds the same checksum."""
    again = frame.copy()
    del again[TCP].chksum
    return bool(rebuilt(again)[TCP].chksum == frame[TCP].chksum)


def acknowledgement(ack: int, *, data: bool = False) -> bytes:
    """A segment of the connection from its far end, as it comes in by some path; with data or without."""
    local, remote = SOURCES[4]
    packet = segment(ip=IP(src=remote, dst=local), ports=PORTS[::-1], ack=ack)
    if not data:
        packet[TCP].remove_payload()
        del packet[IP].len, packet[IP].chksum, packet[TCP].chksum
    return on_the_wire(rebuilt(packet), 50_300)


def announcement_back() -> Packet:
    """An announcement of the connection's other direction, as it comes in from its far end."""
    local, remote = SOURCES[4]
    packet = probe(pair_position=3, bound_ns=PORTS[1] << 16 | PORTS[0])
    packet[IP].src, packet[IP].dst = remote, local
    return signed_probe(packet, 1_000_000_009)


def probe(ip_version: int = 4, sport: int = 50_001, **fields: Any) -> Packet:
    """A template of a TCP probe, as the agent sends it."""
    tcp = TCP(sport=sport, dport=abi.ROCE_PORT, flags="PA", window=WINDOW, chksum=0, seq=0, ack=0)
    tcp.urgptr = -(sport + abi.ROCE_PORT) % 0xFFFF or 0xFFFF
    return rebuilt(link() / network(ip_version) / tcp / Probe(sport=sport, **fields) / Raw(bytes(4)))


def signed_probe(packet: Packet, t1: int) -> Packet:
    """The request as egress leaves it at t1."""
    packet = rebuilt(packet.copy())
    out = packet[TCP].payload
    sent = Probe(bytes(out)[:64])
    sent.t1 = t1
    message = sent.seq.to_bytes(4, "big") + sent.sport.to_bytes(2, "big") + sent.reply_port.to_bytes(2, "big")
    message += sent.bound_ns.to_bytes(4, "big") + TCP_PROTOCOL.to_bytes(4, "little") + addresses(packet)
    sent.mac = as_field(siphash_2_4(KEY, message + t1.to_bytes(8, "little")[:7]))
    packet[TCP].remove_payload()
    made: Packet = packet / sent / Raw(bytes(4))
    return made


def announcement(ip_version: int = 4, ports: tuple[int, int] = PORTS, t1: int = 1_000_000_007) -> Packet:
    """One as it comes in from the host of a connection with these ports."""
    return signed_probe(probe(ip_version, pair_position=3, bound_ns=ports[0] << 16 | ports[1]), t1)


def quoting(quoted: Packet, ip_version: int = 4, quoted_bytes: int | None = None) -> bytes:
    """An ICMP error "too big" about a packet, from a switch."""
    inner = bytes(quoted[IP] if ip_version == 4 else quoted[IPv6])[:quoted_bytes]
    if ip_version == 4:
        return bytes(link() / IP(src="10.9.9.9", dst=SOURCES[4][0]) / ICMP(type=3, code=4) / Raw(inner))
    return bytes(
        link() / IPv6(src="fd00:9::9", dst=SOURCES[6][0]) / ICMPv6PacketTooBig(mtu=1280) / Raw(inner)
    )
