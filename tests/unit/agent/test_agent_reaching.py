"""What a host reaches besides the fabric: gateways and name servers of its files, and who answers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from asynchronous import asynchronous

from cwdp.agent.auditing import reaching
from cwdp.agent.auditing.reaching import Gateway, gateways, name_servers, reached

ROUTE = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    "eth1\t00000000\t00000000\t0001\t0\t0\t200\t00000000\t0\t0\t0\n"
    "eth2\t0000000A\t0201000A\t0003\t0\t0\t100\t000000FF\t0\t0\t0\n"
)
ZERO = "0" * 32
ROUTE_6 = (
    f"{ZERO} 00 {ZERO} 00 fe800000000000000000000000000001 00000400 00000003 00000000 00000003     eth0\n"
    f"{ZERO} 00 {ZERO} 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth1\n"
    f"{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo\n"
)


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_gateways_are_those_of_default_routes(tmp_path: Path) -> None:
    root = _tree(tmp_path, {"proc/net/route": ROUTE, "proc/net/ipv6_route": ROUTE_6})
    assert gateways(root) == [
        Gateway("eth0", "192.168.1.1"),
        Gateway("eth0", "fe80::1%eth0"),
        Gateway("eth1", "fd00::1"),
    ]


@pytest.mark.parametrize("text", ["", "\n", "eth0", "eth0 00000000 zz 1 2 3 4 00000000", "\x00" * 99])
def test_garbage_has_no_gateways(tmp_path: Path, text: str) -> None:
    garbage = f"header\n{text}\n"
    root = _tree(tmp_path, {"proc/net/route": garbage, "proc/net/ipv6_route": garbage})
    assert gateways(root) == []
    assert gateways(tmp_path / "nowhere") == []


def test_name_servers_are_those_of_the_file_once_each(tmp_path: Path) -> None:
    text = "# comment\nsearch example\nnameserver 10.0.0.1\nnameserver\nnameserver fd00::1\nnameserver 10.0.0.1\n"
    assert name_servers(_tree(tmp_path, {"etc/resolv.conf": text})) == ["10.0.0.1", "fd00::1"]
    assert name_servers(tmp_path / "nowhere") == []


class _Server(asyncio.DatagramProtocol):
    """A name server: it refuses, which is an answer."""

    def __init__(self, *, wrong: bool) -> None:
        self._wrong = wrong

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        assert len(data) == 17
        number = bytes(2) if self._wrong else data[:2]
        self._transport.sendto(number + b"\x81\x05" + data[4:], address)


@asynccontextmanager
async def _server(port: int, *, wrong: bool = False) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Server(wrong=wrong), local_addr=("127.0.0.1", port)
    )
    try:
        yield
    finally:
        transport.close()


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _pong() -> None:
    await asyncio.sleep(0.01)


@pytest.mark.parametrize(("serves", "wrong"), [(True, False), (True, True), (False, False)])
@asynchronous
async def test_a_name_server_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serves: bool, wrong: bool
) -> None:
    """Also one that says what was not asked for; refusing is an answer."""
    monkeypatch.setattr(reaching, "WAIT_S", 0.3)
    port = _free_udp_port()
    monkeypatch.setattr(reaching, "DNS_PORT", port)
    root = _tree(tmp_path, {"etc/resolv.conf": "nameserver 127.0.0.1\n"})
    if serves:
        async with _server(port, wrong=wrong):
            facts, missing = await reached(_pong, root)
    else:
        facts, missing = await reached(_pong, root)
    assert facts["dns_silent"] == ([] if serves and not wrong else ["127.0.0.1"])
    assert (facts["gateways_silent"], missing) == ([], {})
    assert isinstance(facts["bus_rtt_ns"], int)
    assert 10_000_000 <= facts["bus_rtt_ns"] < 200_000_000


@asynchronous
async def test_what_cannot_be_asked_is_silent_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "WAIT_S", 0.1)
    route = ROUTE.replace("eth0", "gone0")
    root = _tree(tmp_path, {"etc/resolv.conf": "nameserver no-address\n", "proc/net/route": route})

    async def gone() -> None:
        raise ConnectionError

    async def hangs() -> None:
        await asyncio.sleep(9.0)

    for ping in (gone, hangs):
        facts, missing = await reached(ping, root)
        assert facts == {"dns_silent": ["no-address"], "gateways_silent": ["192.168.1.1 by gone0"]}
        assert missing == {"bus_rtt_ns": "the bus server did not answer"}
