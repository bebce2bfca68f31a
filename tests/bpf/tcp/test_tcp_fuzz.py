"""Mutated segments through the programs, judged by a parser of its own: what may change, and what must."""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from machine import XDP_DROP, XDP_PASS, Machine
from segments import PORTS, announcement, connection, on_the_wire, quoting, segment

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.steering.tcp import TcpSteer, TcpSteering

pytestmark = pytest.mark.kernel

FRAMES = int(os.environ.get("CWDP_FUZZ_TCP_FRAMES", "20000"))
SPORT = 50_001
SHORTEST = 60
"""Shorter frames the kernel does not make."""

WIRE = (SPORT, abi.ROCE_PORT)
TCP_BYTES, PORTS_AT, FLAGS_AT, URGENT_AT = 20, slice(0, 4), 13, slice(18, 20)
ACK, OTHERS = 0x10, 0x02 | 0x04 | 0x20


@dataclass(frozen=True)
class Parsed:
    """Where the TCP header of a frame is, and what it says."""

    at: int
    ends: bytes
    ports: tuple[int, int]
    urgent: int
    is_plain: bool
    """ACK, and neither SYN, RST nor URG."""


def parse(frame: bytes) -> Parsed | None:
    """None for what is no TCP, a fragment, or behind options or extension headers; RFC 791, 8200 and 9293."""
    at, kind = 14, frame[12:14]
    for _ in range(2):
        if kind not in (b"\x81\x00", b"\x88\xa8"):
            break
        kind, at = frame[at + 2 : at + 4], at + 4
    ip = frame[at:]
    if kind == b"\x08\x00" and len(ip) >= 20:
        if ip[0] != 0x45 or ip[9] != 6 or int.from_bytes(ip[6:8], "big") & 0x3FFF:
            return None
        ends, at = ip[12:20], at + 20
    elif kind == b"\x86\xdd" and len(ip) >= 40:
        if ip[0] >> 4 != 6 or ip[6] != 6:
            return None
        ends, at = ip[8:40], at + 40
    else:
        return None
    tcp = frame[at : at + TCP_BYTES]
    if len(tcp) < TCP_BYTES:
        return None
    ports = int.from_bytes(tcp[:2], "big"), int.from_bytes(tcp[2:4], "big")
    plain = tcp[FLAGS_AT] & (ACK | OTHERS) == ACK
    return Parsed(at, ends, ports, int.from_bytes(tcp[URGENT_AT], "big"), plain)


def with_ports(frame: bytes, at: int, ports: tuple[int, int], urgent: int) -> bytes:
    out = bytearray(frame)
    out[at : at + 4] = ports[0].to_bytes(2, "big") + ports[1].to_bytes(2, "big")
    out[at + 18 : at + 20] = urgent.to_bytes(2, "big")
    return bytes(out)


ENDS = {parsed.ends for version in (4, 6) if (parsed := parse(bytes(segment(version))))}


def expected_egress(frame: bytes) -> bytes:
    """Of the connections of `segment` over both families, which are steered."""
    found = parse(frame)
    if found is None or found.ends not in ENDS or found.ports != PORTS or not found.is_plain or found.urgent:
        return frame
    return with_ports(frame, found.at, WIRE, (sum(PORTS) - sum(WIRE) - 1) % 0xFFFF + 1)


def expected_ingress(frame: bytes) -> tuple[int, bytes]:
    """Of those connections, which are announced."""
    found = parse(frame)
    if found is None or found.ports[1] != abi.ROCE_PORT or not found.is_plain or not found.urgent:
        return XDP_PASS, frame
    if found.ends not in ENDS:
        return XDP_PASS, frame
    if (sum(found.ports) + found.urgent - sum(PORTS)) % 0xFFFF:
        return XDP_DROP, frame
    return XDP_PASS, with_ports(frame, found.at, PORTS, 0)


def corpus() -> list[bytes]:
    made = []
    for version in (4, 6):
        for vlans in (0, 1, 2):
            packet = segment(version, vlans)
            made += [bytes(packet), on_the_wire(packet, SPORT)]
    return made


def mutated(source: random.Random, frames: list[bytes]) -> bytes:
    """One of them with some bytes others, mostly of its headers, cut short or with a piece of another in it."""
    frame = bytearray(source.choice(frames))
    for _ in range(source.choice((0, 1, 1, 2, 5))):
        place = source.randrange(len(frame) if source.random() < 0.1 else min(len(frame), 90))
        frame[place] = source.choice(
            (0, 0xFF, frame[place] ^ 1 << source.randrange(8), source.randrange(256))
        )
    if source.random() < 0.1:
        other = source.choice(frames)
        start = source.randrange(min(len(frame), 80))
        frame[start : start + 16] = other[start : start + 16]
    if source.random() < 0.1:
        del frame[source.randrange(SHORTEST, len(frame) + 1) :]
    return bytes(frame)


@pytest.fixture
def programs(dataplane: Machine) -> Iterator[tuple[int, int]]:
    """XDP and tc egress, with both connections steered, confirmed and announced."""
    steering = TcpSteering(dataplane.maps)
    for version in (4, 6):
        steering.set(connection(version), TcpSteer(SPORT))
        dataplane.ingress(announcement(version))
        other = announcement(version, (PORTS[0] + 1, PORTS[1]))
        dataplane.ingress(other)
    numbers = np.flatnonzero(dataplane.maps.tcp_conns["flags"])
    dataplane.maps.tcp_conns["confirmed_ns"][numbers] = time.monotonic_ns() + 3_600 * 10**9
    opened = libbpf.get(dataplane.pin("xdp_ingress")), libbpf.get(dataplane.pin("tc_egress"))
    yield opened
    for fd in opened:
        os.close(fd)
    for version in (4, 6):
        steering.unset(connection(version))
    steering.forget_silent(2**62)


def test_mutated_segments(programs: tuple[int, int]) -> None:
    xdp, egress = programs
    seed = random.randrange(2**32)
    source, frames = random.Random(seed), corpus()
    steered = restored = 0
    for _ in range(FRAMES):
        frame = mutated(source, frames)
        _, out, _ = libbpf.prog_test_run(egress, frame)
        assert out == expected_egress(frame), (seed, frame.hex())
        steered += out != frame
        verdict, back, _ = libbpf.prog_test_run(xdp, out)
        if out != frame:
            assert (verdict, back) == (XDP_PASS, frame), (seed, frame.hex())
        verdict, back, _ = libbpf.prog_test_run(xdp, frame)
        wanted = expected_ingress(frame)
        if wanted[0] == XDP_DROP and verdict == XDP_PASS:
            assert is_of_the_other(frame, back), (seed, frame.hex())
        else:
            assert (verdict, back) == wanted, (seed, frame.hex())
        restored += back != frame
    assert min(steered, restored) > FRAMES / 20


def is_of_the_other(frame: bytes, out: bytes) -> bool:
    """Whether a segment was given the ports of the other connection that is announced, and those alone."""
    found = parse(frame)
    ports = PORTS[0] + 1, PORTS[1]
    return (
        found is not None
        and (sum(found.ports) + found.urgent - sum(ports)) % 0xFFFF == 0
        and out == with_ports(frame, found.at, ports, 0)
    )


def test_mutated_quotes(programs: tuple[int, int]) -> None:
    """An ICMP error is passed in any case; what changes are ports and urgent pointer of its quote, whose sum stays."""
    xdp, _ = programs
    seed = random.randrange(2**32)
    source = random.Random(seed)
    frames = [
        quoting(type(segment(version))(on_the_wire(segment(version), SPORT)), version, 200)
        for version in (4, 6)
    ]
    restored = 0
    for _ in range(FRAMES // 4):
        frame = mutated(source, frames)
        verdict, out, _ = libbpf.prog_test_run(xdp, frame)
        assert verdict == XDP_PASS, (seed, frame.hex())
        assert len(out) == len(frame)
        changed = [n for n, (a, b) in enumerate(zip(frame, out, strict=True)) if a != b]
        if changed:
            restored += 1
            assert changed[-1] - changed[0] < TCP_BYTES, (seed, frame.hex())
            words = [
                sum(int.from_bytes(one[n : n + 2], "big") for n in range(14, 150, 2)) for one in (frame, out)
            ]
            assert (words[0] - words[1]) % 0xFFFF == 0, (seed, frame.hex())
    assert restored > FRAMES / 40
