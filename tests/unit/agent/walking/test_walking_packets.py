"""A walk's packets, and the ICMP errors that quote them, against scapy."""

import random
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6PacketTooBig, ICMPv6TimeExceeded, IPv6
from scapy.packet import Raw

from cwdp.agent.tracing.packets import FlowPath, HopProbe, quote_key
from cwdp.agent.walking.packets import HopAnswer, build, read_icmpv4, read_icmpv6, tos_of
from cwdp.dataplane import abi

V4 = FlowPath("nic0", "10.1.0.1", "10.2.0.1", 50_000)
V6 = FlowPath("nic0", "fd0c:0:1::1", "fd0c:0:2::1", 50_000)
PATHS = pytest.mark.parametrize("path", [V4, V6], ids=["ipv4", "ipv6"])
SWITCH = {socket.AF_INET: "10.254.1.1", socket.AF_INET6: "fd0c:0:fe01::1"}
TOS = 26 << 2 | 2


def made(path: FlowPath, size_bytes: int = 4_096, tos: int = TOS, hop_limit: int = 3) -> HopProbe:
    return build(path, hop_limit, 4791, size_bytes=size_bytes, tos=tos)


def dissected(probe: HopProbe) -> Any:
    return (IP if probe.path.family == socket.AF_INET else IPv6)(probe.packet)


def error(probe: HopProbe, kind: str = "expired", *, tos: int = 0, mtu: int = 0, length: int = 548) -> bytes:
    """An ICMP error as a raw socket gives it, which quotes so many bytes of a packet that came with this TOS."""
    inner = dissected(probe)
    if probe.path.family == socket.AF_INET:
        inner.ttl, inner.tos = 1, tos
        del inner.chksum
        number, code = {"expired": (11, 0), "unreachable": (3, 3), "too_big": (3, 4)}[kind]
        icmp = (
            ICMP(type=number, code=code, nexthopmtu=mtu)
            if kind == "too_big"
            else ICMP(type=number, code=code)
        )
        header = IP(src=SWITCH[probe.path.family], dst=probe.path.source)
        return bytes(header / icmp / Raw(bytes(inner)[:length]))
    inner.hlim, inner.tc = 1, tos
    icmp6 = {
        "expired": ICMPv6TimeExceeded(cksum=0),
        "unreachable": ICMPv6DestUnreach(code=4, cksum=0),
        "too_big": ICMPv6PacketTooBig(mtu=mtu, cksum=0),
    }[kind]
    return bytes(icmp6 / Raw(bytes(inner)[:length]))


def read(path: FlowPath, data: bytes) -> HopAnswer | None:
    if path.family == socket.AF_INET:
        return read_icmpv4(data)
    return read_icmpv6(data, SWITCH[path.family] + "%nic0")


@PATHS
@pytest.mark.parametrize("size_bytes", [128, 129, 1_500, 4_177, 9_000, 65_535])
@pytest.mark.parametrize("tos", [0, 1, TOS, 255])
def test_the_headers_are_those_of_a_whole_packet_that_is_not_to_be_divided(
    path: FlowPath, size_bytes: int, tos: int
) -> None:
    probe = made(path, size_bytes, tos)
    assert len(probe.packet) == size_bytes
    parsed = dissected(probe)
    assert (parsed.src, parsed.dst) == (path.source, path.destination)
    assert (parsed[UDP].sport, parsed[UDP].dport) == (50_000, 4791)
    if path is V4:
        assert (parsed.version, parsed.ihl, parsed.len, parsed.tos, parsed.ttl) == (4, 5, size_bytes, tos, 3)
        assert (str(parsed.flags), parsed.frag) == ("DF", 0)
        assert parsed.id
    else:
        assert (parsed.version, parsed.plen, parsed.tc, parsed.hlim) == (6, size_bytes - 40, tos, 3)
        assert parsed.fl == 0
    assert parsed[UDP].len == size_bytes - (20 if path is V4 else 40)
    assert tos_of(probe.packet) == tos


@PATHS
@pytest.mark.parametrize("size_bytes", [128, 129, 1_499, 1_500])
def test_the_udp_checksum_is_right(path: FlowPath, size_bytes: int) -> None:
    for _ in range(50):
        parsed = dissected(made(path, size_bytes))
        told = parsed[UDP].chksum
        del parsed[UDP].chksum
        assert type(parsed)(bytes(parsed))[UDP].chksum == told != 0


@PATHS
def test_it_is_a_probe_that_is_no_request(path: FlowPath) -> None:
    """By BTH and magic the dataplane knows it, and steers and counts no queue pair; its kind has nobody reflect it."""
    udp = bytes(dissected(made(path))[UDP])
    assert udp[8] == abi.BTH_OPCODE
    assert int.from_bytes(udp[12:16], "big") == abi.BTH_QPN
    assert udp[20:24] == abi.PROBE_MAGIC.to_bytes(4, "big")
    assert udp[25] not in list(abi.ProbeKind)
    assert not any(udp[abi.PROBE_PACKET.itemsize :])


@PATHS
@pytest.mark.parametrize("kind", ["expired", "unreachable", "too_big"])
@pytest.mark.parametrize("payload", [8, 28, 508])
@pytest.mark.parametrize("tos", [0, TOS, TOS | 1])
def test_an_answer_tells_who_and_what_came_there(path: FlowPath, kind: str, payload: int, tos: int) -> None:
    probe = made(path)
    header = 20 if path is V4 else 40
    answer = read(path, error(probe, kind, tos=tos, mtu=1_500, length=header + payload))
    assert answer is not None
    assert (answer.kind, answer.responder, answer.tos) == (kind, SWITCH[path.family], tos)
    assert answer.mtu_bytes == (1_500 if kind == "too_big" else 0)
    assert quote_key(answer.quote) == probe.key
    assert probe.is_quoted_by(answer.quote)
    assert not made(path).is_quoted_by(answer.quote)


def test_a_too_big_without_an_mtu_is_one() -> None:
    """As routers from before RFC 1191 tell it."""
    answer = read(V4, error(made(V4), "too_big"))
    assert answer is not None
    assert (answer.kind, answer.mtu_bytes) == ("too_big", 0)


def test_other_kinds_of_unreachable_have_no_mtu() -> None:
    data = bytearray(error(made(V4), "unreachable"))
    data[26:28] = b"\x05\xdc"
    answer = read(V4, bytes(data))
    assert answer is not None
    assert (answer.kind, answer.mtu_bytes) == ("unreachable", 0)


@PATHS
def test_other_icmp_is_passed_over(path: FlowPath) -> None:
    data = bytearray(error(made(path)))
    place = 20 if path is V4 else 0
    for number in set(range(256)) - ({3, 11} if path is V4 else {1, 2, 3}):
        data[place] = number
        assert read(path, bytes(data)) is None, number


@PATHS
@pytest.mark.parametrize("kind", ["expired", "unreachable", "too_big"])
def test_no_damage_makes_the_reader_fail(path: FlowPath, kind: str) -> None:
    rng = random.Random(1)
    probe = made(path, 600)
    whole = error(probe, kind)
    for length in range(len(whole)):
        look(path, probe, whole[:length])
    for _ in range(5_000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            data[rng.choice((rng.randrange(len(data)), rng.randrange(72)))] = rng.randrange(256)
        look(path, probe, bytes(data[: rng.randrange(len(data) + 1)]))


@PATHS
@given(data=st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail(path: FlowPath, data: bytes) -> None:
    look(path, PROBES[path], data)


PROBES = {path: made(path) for path in (V4, V6)}


def look(path: FlowPath, probe: HopProbe, data: bytes) -> None:
    """Do with what came what the agent does."""
    answer = read(path, data)
    if answer is not None:
        quote_key(answer.quote)
        probe.is_quoted_by(answer.quote)
        assert 0 <= answer.tos <= 255
        assert 0 <= answer.mtu_bytes < 2**32
