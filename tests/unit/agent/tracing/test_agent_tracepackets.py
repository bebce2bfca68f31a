"""Hop-limited probes and the ICMP errors that quote them, against scapy."""

import random
import socket
from dataclasses import replace

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6TimeExceeded, IPv6
from scapy.packet import Raw

from cwdp.agent.probing import packets
from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe, build, quote_key, read_icmpv4, read_icmpv6
from cwdp.dataplane import abi

V4 = FlowPath("nic0", "10.1.0.1", "10.2.0.1", 50_000)
V6 = FlowPath("nic0", "fd0c:0:1::1", "fd0c:0:2::1", 50_000)
PATHS = pytest.mark.parametrize("path", [V4, V6], ids=["ipv4", "ipv6"])


def quoted(probe: HopProbe, length: int = 2_000, sender: str = "", kind: str = "expired") -> bytes:
    """An ICMP error as a raw socket gives it, that quotes so many bytes of a probe, changed as switches do."""
    if probe.path is V4 or ":" not in probe.path.destination:
        inner = IP(probe.packet)
        inner.ttl, inner.tos = 1, inner.tos | 3
        del inner.chksum
        icmp = ICMP(type=11 if kind == "expired" else 3, code=0 if kind == "expired" else 3)
        return bytes(
            IP(src=sender or "10.254.1.1", dst=probe.path.source) / icmp / Raw(bytes(inner)[:length])
        )
    inner6 = IPv6(probe.packet)
    inner6.hlim, inner6.tc = 1, inner6.tc | 3
    error = ICMPv6TimeExceeded(cksum=0) if kind == "expired" else ICMPv6DestUnreach(code=4, cksum=0)
    return bytes(error / Raw(bytes(inner6)[:length]))


def read(path: FlowPath, data: bytes, sender: str = "fd0c:0:fe01::1") -> Answer | None:
    return read_icmpv4(data) if path is V4 else read_icmpv6(data, sender)


@PATHS
def test_a_probe_has_the_headers_of_a_mesh_probe_but_for_hop_limit_and_nonces(path: FlowPath) -> None:
    probe = build(path, 3, 4791)
    parsed = IP(probe.packet) if path is V4 else IPv6(probe.packet)
    mesh = packets.requests([packets.Path(0, path.source, path.destination, path.sport, 0)], 1, 4791)
    like = (IP if path is V4 else IPv6)(mesh.tobytes())
    assert (parsed.ttl if path is V4 else parsed.hlim) == 3
    assert (parsed.src, parsed.dst) == (path.source, path.destination)
    assert (parsed[UDP].sport, parsed[UDP].dport) == (path.sport, 4791)
    assert (parsed.tos if path is V4 else (parsed.tc, parsed.fl)) == (
        like.tos if path is V4 else (like.tc, like.fl)
    )
    assert len(probe.packet) == mesh.itemsize
    udp = bytes(parsed[UDP])
    assert udp[8] == abi.BTH_OPCODE
    assert udp[20:24] == abi.PROBE_MAGIC.to_bytes(4, "big")


@PATHS
def test_the_udp_checksum_is_right(path: FlowPath) -> None:
    for _ in range(200):
        probe = build(path, 1, 4791)
        parsed = IP(probe.packet) if path is V4 else IPv6(probe.packet)
        told = parsed[UDP].chksum
        del parsed[UDP].chksum
        again = (IP if path is V4 else IPv6)(bytes(parsed))
        assert again[UDP].chksum == told != 0


@PATHS
def test_two_probes_differ_in_the_least_quote(path: FlowPath) -> None:
    probes = [build(path, 1, 4791) for _ in range(64)]
    assert len({probe.key for probe in probes}) > 60
    one, other = probes[0], next(probe for probe in probes if probe.key != probes[0].key)
    assert not one.is_quoted_by(other.packet)


@PATHS
@pytest.mark.parametrize("payload", [8, 20, 28, 64, 2_000])
@pytest.mark.parametrize("kind", ["expired", "unreachable"])
def test_an_answer_is_matched_whatever_it_quotes(path: FlowPath, payload: int, kind: str) -> None:
    probe = build(path, 2, 4791)
    header = 20 if path is V4 else 40
    answer = read(path, quoted(probe, header + payload, kind=kind))
    assert answer is not None
    assert answer.kind == kind
    assert answer.responder == ("10.254.1.1" if path is V4 else "fd0c:0:fe01::1")
    assert quote_key(answer.quote) == probe.key
    assert probe.is_quoted_by(answer.quote)


@PATHS
def test_a_quote_that_is_padded_is_matched(path: FlowPath) -> None:
    # RFC 4884 4.5: the original datagram is padded with zeros to 128 bytes where extensions follow.
    probe = build(path, 2, 4791)
    answer = read(path, quoted(probe) + bytes(64))
    assert answer is not None
    assert probe.is_quoted_by(answer.quote)


@PATHS
def test_a_quote_with_any_byte_of_the_nonces_changed_is_not_matched(path: FlowPath) -> None:
    probe = build(path, 2, 4791)
    header = 20 if path is V4 else 40
    places = [*range(header, len(probe.packet))]
    if path is V4:
        places += [4, 5]
    for place in places:
        quote = bytearray(probe.packet)
        quote[place] ^= 0x10
        assert not probe.is_quoted_by(bytes(quote)), place


@PATHS
def test_no_bytes_make_the_reader_fail(path: FlowPath) -> None:
    rng = random.Random(1)
    probe = build(path, 2, 4791)
    whole = quoted(probe)
    for length in range(len(whole)):
        read(path, whole[:length])
    for _ in range(5_000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        answer = read(path, bytes(data[: rng.randrange(len(data) + 1)]))
        if answer is not None:
            quote_key(answer.quote)
            probe.is_quoted_by(answer.quote)


def test_other_icmp_is_passed_over() -> None:
    probe = build(V4, 2, 4791)
    for icmp in (ICMP(type=8), ICMP(type=5), ICMP(type=12)):
        assert read_icmpv4(bytes(IP() / icmp / Raw(probe.packet))) is None
    assert read_icmpv4(bytes(IP() / ICMP(type=11) / IP() / Raw(bytes(40)))) is None


@pytest.mark.parametrize("path", [replace(V4, protocol=6), replace(V6, protocol=6)], ids=["IPv4", "IPv6"])
def test_over_tcp(path: FlowPath) -> None:
    """As pulses over TCP paths, and found by the least quote: ports and sequence number."""
    probe, other = build(path, 3, 4791), build(path, 3, 4791)
    is_v4 = path.family == socket.AF_INET
    parsed = IP(probe.packet) if is_v4 else IPv6(probe.packet)
    assert (parsed[TCP].sport, parsed[TCP].dport, parsed[TCP].flags) == (path.sport, 4791, "PA")
    assert (path.sport + 4791 + parsed[TCP].urgptr) % 0xFFFF == 0
    assert is_v4 or parsed.fl == path.sport & 0x3FFF
    assert bytes(parsed[TCP].payload)[:4] == abi.PROBE_MAGIC.to_bytes(4, "big")
    header = 20 if is_v4 else 40
    least = bytes(parsed)[: header + 8]
    if is_v4:
        answer = read_icmpv4(bytes(IP(src="10.254.1.1") / ICMP(type=11) / Raw(least)))
    else:
        answer = read_icmpv6(bytes(ICMPv6TimeExceeded(cksum=0) / Raw(least)), "fd0c:0:fe01::1")
    assert answer is not None
    assert quote_key(answer.quote) == probe.key
    assert probe.is_quoted_by(answer.quote)
    assert not other.is_quoted_by(answer.quote)
