"""What a host reaches besides the fabric: its bus server, its gateways, its name servers. For an audit."""

import asyncio
import contextlib
import ipaddress
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cwdp.agent.tracing.echo_tests import Echo
from cwdp.audit.areas.nic.routes import dns_servers
from cwdp.shared.audit.facts import Value

TRIES, WAIT_S = 3, 1.0
DNS_PORT = 53
MOST = 16
"""Gateways, and name servers, that are asked."""

_QUERY_OF_ROOT = struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + b"\0" + struct.pack(">HH", 2, 1)
"""Behind the query's number: its flags (recursion desired), one question, for the name servers of the root (RFC 1035 4.1)."""

_IS_ANSWER = 0x80

Facts = dict[str, Value]
Reasons = dict[str, str]


class Gateway(NamedTuple):
    """Of a default route."""

    nic: str
    address: str


async def reached(ping: Callable[[], Awaitable[None]], root: Path = Path("/")) -> tuple[Facts, Reasons]:
    """Facts of the area `reach`, and why others are missing.

    Args:
        ping: asks the bus server, and returns with its answer.
        root: below which the host's files are.
    """
    facts: Facts = {}
    missing: Reasons = {}
    rtt_ns, silent, unnamed = await asyncio.gather(
        _bus_rtt_ns(ping), _silent(gateways(root), _answers_echo), _silent(name_servers(root), _answers_query)
    )
    facts["gateways_silent"], facts["dns_silent"] = silent, unnamed
    if rtt_ns is None:
        missing["bus_rtt_ns"] = "the bus server did not answer"
    else:
        facts["bus_rtt_ns"] = rtt_ns
    return facts, missing


def gateways(root: Path) -> list[Gateway]:
    """Those of default routes of both families, each once."""
    found = dict.fromkeys(
        [
            *_ipv4_gateways(_text(root / "proc/net/route")),
            *_ipv6_gateways(_text(root / "proc/net/ipv6_route")),
        ]
    )
    return list(found)[:MOST]


def name_servers(root: Path) -> list[str]:
    """Those of resolv.conf(5), each once."""
    return list(dict.fromkeys(dns_servers(_text(root / "etc/resolv.conf"))))[:MOST]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ipv4_gateways(text: str) -> Iterator[Gateway]:
    """Documentation/networking: addresses are hexadecimal, as they lie in memory."""
    for line in text.splitlines()[1:]:
        words = line.split()
        with contextlib.suppress(ValueError, IndexError, struct.error):
            if words[1] == words[7] == "00000000" and words[2] != "00000000":
                packed = struct.pack("=I", int(words[2], 16))
                yield Gateway(words[0], str(ipaddress.IPv4Address(packed)))


def _ipv6_gateways(text: str) -> Iterator[Gateway]:
    for line in text.splitlines():
        words = line.split()
        with contextlib.suppress(ValueError, IndexError):
            if words[1] == "00" and int(words[0], 16) == 0 and int(words[4], 16):
                address = ipaddress.IPv6Address(bytes.fromhex(words[4]))
                yield Gateway(words[9], f"{address}%{words[9]}" if address.is_link_local else str(address))


async def _bus_rtt_ns(ping: Callable[[], Awaitable[None]]) -> int | None:
    """The least of some: this host is busy with its own audit, too."""
    took: list[int] = []
    for _ in range(TRIES):
        began_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(WAIT_S):
                await ping()
        except (TimeoutError, OSError):
            return None
        took.append(time.monotonic_ns() - began_ns)
    return min(took)


async def _silent(asked: Iterable[Gateway | str], answers: Callable[..., Awaitable[bool]]) -> list[str]:
    """Those that do not answer, by name."""
    everybody = list(asked)
    heard = await asyncio.gather(*(answers(one) for one in everybody))
    return [
        one if isinstance(one, str) else f"{one.address.partition('%')[0]} by {one.nic}"
        for one, is_heard in zip(everybody, heard, strict=True)
        if not is_heard
    ]


async def _answers_echo(gateway: Gateway) -> bool:
    try:
        echo = Echo(gateway.nic, gateway.address)
    except (OSError, ValueError):
        return False
    with contextlib.closing(echo):
        for number in range(TRIES):
            echo.send(number)
            ends_s = time.monotonic() + WAIT_S / TRIES
            while time.monotonic() < ends_s:
                await asyncio.sleep(0.01)
                echo.hear()
                if echo.answered:
                    return True
    return False


class _Answered(asyncio.DatagramProtocol):
    """Waits for an answer to a query of a number."""

    def __init__(self, number: bytes) -> None:
        self._number = number
        self.came = asyncio.Event()

    def datagram_received(self, data: bytes, _address: object) -> None:
        if len(data) > len(_QUERY_OF_ROOT) and data[:2] == self._number and data[2] & _IS_ANSWER:
            self.came.set()

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there: there may be another answer to the next try."""


async def _answers_query(server: str) -> bool:
    number = secrets.token_bytes(2)
    loop = asyncio.get_running_loop()
    try:
        address = ipaddress.ip_address(server)
        transport, told = await loop.create_datagram_endpoint(
            lambda: _Answered(number), remote_addr=(str(address), DNS_PORT)
        )
    except (OSError, ValueError):
        return False
    with contextlib.closing(transport):
        for _ in range(TRIES):
            transport.sendto(number + _QUERY_OF_ROOT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S / TRIES):
                    await told.came.wait()
                return True
    return False
