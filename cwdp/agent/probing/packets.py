"""Probe packets as arrays: IP header, UDP and BTH or TCP, and probe, one row a packet."""

import socket
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.inet import family_of
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Position

IPV4_HEADER = 20
IPV6_HEADER = 40
TTL = 64
DSCP_DEFAULT = 26 << 2  # AF31, where most RoCEv2 fabrics put their traffic

IPV4 = np.dtype(
    [
        ("version_ihl", "u1"),
        ("tos", "u1"),
        ("total_length", ">u2"),
        ("id", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("source", "S4"),
        ("destination", "S4"),
    ]
)
"""RFC 791; the kernel fills in the checksum of a packet from a raw socket."""

IPV6 = np.dtype(
    [
        ("flow", ">u4"),
        ("payload_length", ">u2"),
        ("next_header", "u1"),
        ("hop_limit", "u1"),
        ("source", "S16"),
        ("destination", "S16"),
    ]
)
"""RFC 8200."""


@dataclass(frozen=True)
class Path:
    """One path to probe: addresses of one family, the ports that select the way there and back.

    `protocol` is IPPROTO_TCP for the path of TCP connections, 0 for that of RoCEv2.
    """

    number: int
    source: str
    destination: str
    sport: int
    reply_port: int
    protocol: int = 0

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return family_of(self.destination)


def build(paths: list[Path], key_id: int, port: int) -> NDArray[np.void]:
    """Templates of pairs, all of one address family: two packets a path, one behind the other.

    Returns:
        Shape (2 * len(paths),), as of `requests`.
    """
    templates = requests([path for path in paths for _ in range(2)], key_id, port)
    positions = [Position.FIRST, Position.SECOND]
    templates["packet"]["probe"]["pair_position"] = np.tile(positions, len(paths))
    return templates


def requests(paths: list[Path], key_id: int, port: int) -> NDArray[np.void]:
    """Templates of requests, all of one address family, one a path.

    Returns:
        Shape (len(paths),), with fields `ip` (IPV4 or IPV6) and `packet` (`abi.PROBE_PACKET`).
    """
    family = paths[0].family
    header = IPV4 if family == socket.AF_INET else IPV6
    templates = np.zeros(len(paths), dtype=[("ip", header), ("packet", abi.PROBE_PACKET)])
    _fill_ip(templates["ip"], paths, family)
    packet = templates["packet"]
    packet["sport"] = [p.sport for p in paths]
    packet["dport"] = port
    packet["len"] = abi.PROBE_PACKET.itemsize
    bth = packet["bth"]
    bth["opcode"], bth["pkey"], bth["qpn"] = abi.BTH_OPCODE, abi.BTH_PKEY, abi.BTH_QPN
    _make_tcp(templates, np.array([p.protocol == socket.IPPROTO_TCP for p in paths]))
    probe = packet["probe"]
    probe["magic"], probe["version"], probe["kind"] = (
        abi.PROBE_MAGIC,
        abi.PROBE_VERSION,
        abi.ProbeKind.REQUEST,
    )
    probe["key_id"] = key_id
    probe["path"] = [p.number for p in paths]
    probe["sport"] = packet["sport"]
    probe["reply_port"] = [p.reply_port for p in paths]
    return templates


def _make_tcp(templates: NDArray[np.void], rows: NDArray[np.bool_]) -> None:
    """Have some templates be TCP segments: UDP header and BTH become a TCP header (bpf/probe_types.h).

    Their checksum is wrong: where nobody takes a probe for one, the stack drops it unheard. Their ports and urgent pointer
    add up to TCP_PROBE_SUM.
    """
    packet, ip = templates["packet"], templates["ip"]
    for name, value in {"opcode": 0, "pkey": 0, "qpn": abi.TCP_PROBE}.items():
        packet["bth"][name][rows] = value
    packet["len"][rows] = 0
    ports = packet["sport"][rows].astype(np.int64) + packet["dport"][rows]
    packet["bth"]["psn"][rows] = (abi.TCP_PROBE_SUM - ports - 1) % 0xFFFF + 1
    ip["protocol" if "protocol" in (ip.dtype.names or ()) else "next_header"][rows] = socket.IPPROTO_TCP


def _fill_ip(ip: NDArray[np.void], paths: list[Path], family: socket.AddressFamily) -> None:
    if family == socket.AF_INET:
        ip["version_ihl"], ip["tos"], ip["ttl"], ip["protocol"] = 0x45, DSCP_DEFAULT, TTL, socket.IPPROTO_UDP
        ip["total_length"] = IPV4_HEADER + abi.PROBE_PACKET.itemsize
    else:
        ip["flow"] = 6 << 28 | DSCP_DEFAULT << 20
        ip["next_header"], ip["hop_limit"] = socket.IPPROTO_UDP, TTL
        ip["payload_length"] = abi.PROBE_PACKET.itemsize
    ip["source"] = [socket.inet_pton(family, p.source) for p in paths]
    ip["destination"] = [socket.inet_pton(family, p.destination) for p in paths]


def round_robin(rates: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.intp]:
    """An order of paths in which each comes as often as its rate asks, evenly spread.

    Args:
        rates: relative rates, shape (n,), positive.
        rng: makes the phases of the paths random, so that paths of equal rate are mixed.

    Returns:
        Indices into `rates`; the path with the lowest rate comes once.
    """
    times = np.maximum(1, np.round(rates / rates.min())).astype(np.intp)
    index = np.repeat(np.arange(len(rates)), times)
    turn = np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)
    phase = rng.random(len(rates))
    when: NDArray[np.float64] = (turn + phase[index]) / times[index]
    return index[np.argsort(when, kind="stable")]
