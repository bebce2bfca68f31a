"""Sockets on the probes' port, packet filters, connection tracking, and the bus."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cwdp.doctor.facts import Bus, Firewall, UdpSocket
from cwdp.doctor.reading.kernel import text
from cwdp.doctor.reading.processes import owner_of

TIMEOUT_S = 2.0
GREETING_BYTES = 4096
BUS_PORT = 4222
NET, NETFILTER = Path("/proc/self/net"), Path("/proc/sys/net/netfilter")


def read_udp_sockets(port: int) -> list[UdpSocket]:
    """Who receives on a UDP port in this network namespace."""
    return [
        UdpSocket(address=address, program=owner_of(inode) if inode != "0" else "")
        for table in ("udp", "udp6")
        for address, number, inode in _sockets(text(NET / table))
        if number == port
    ]


def read_firewall() -> Firewall:
    """What stands in the way of packets that leave."""
    tracked, limit = (text(NETFILTER / f"nf_conntrack_{name}") for name in ("count", "max"))
    return Firewall(
        ruleset=_ruleset(),
        has_iptables=any(text(NET / f"ip{version}_tables_names") for version in ("", "6")),
        tracked=int(tracked) if tracked else None,
        tracked_max=int(limit) if limit else None,
    )


def read_bus(url: str) -> Bus:
    """How a bus answers: a nats-server speaks first, in the clear, whatever comes after."""
    try:
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or BUS_PORT)
        with socket.create_connection(address, TIMEOUT_S) as connection:
            greeting = connection.recv(GREETING_BYTES)
    except (OSError, ValueError) as error:
        return Bus(problem=str(getattr(error, "strerror", None) or error))
    if not greeting.startswith(b"INFO "):
        return Bus(problem="what answers there is no nats-server")
    return Bus(version=_version(greeting))


def _sockets(table: str) -> Iterator[tuple[str, int, str]]:
    """Address in hex, port and inode of each line of /proc/net/udp (Documentation/networking/proc_net_tcp.rst)."""
    for line in table.splitlines()[1:]:
        columns = line.split()
        address, _, port = columns[1].partition(":")
        yield address, int(port, 16), columns[9]


def _ruleset() -> list[dict[str, Any]] | None:
    if shutil.which("nft") is None:
        return None
    try:
        asked = subprocess.run(
            ("nft", "-j", "list", "ruleset"), capture_output=True, timeout=TIMEOUT_S, check=True
        )
        found: list[dict[str, Any]] = json.loads(asked.stdout)["nftables"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None
    return found


def _version(greeting: bytes) -> str:
    try:
        return str(json.loads(greeting.removeprefix(b"INFO ").partition(b"\r\n")[0])["version"])
    except (ValueError, KeyError):
        return "of an unknown version"
