"""The traffic generator's packets, taken apart by scapy; both ends run in one process, which loses
every 11th packet or has it come after the next."""

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

from tools.roce.process import PROGRAM

pytestmark = pytest.mark.needs(PROGRAM)

FIRST, MIDDLE, LAST, ONLY, ACKNOWLEDGE, CNP = 0x06, 0x07, 0x08, 0x0A, 0x11, 0x81
WRITES = {FIRST, MIDDLE, LAST, ONLY}
FIRST_PSN = 0xFFFFFD
REQUESTER_QPN, RESPONDER_QPN = 0x000011, 0xFFFFFE
ACK, NAK_SEQUENCE = 0x1F, 0x60
PSNS = 2**24


@dataclass
class Packet:
    sender: str
    fate: str
    raw: bytes
    ip: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ip = (IP if self.raw[0] >> 4 == 4 else IPv6)(self.raw)

    @property
    def bth(self) -> BTH:
        return self.ip[BTH]

    @property
    def body(self) -> bytes:
        """What follows the BTH, without the ICRC."""
        return bytes(self.raw[len(self.raw) - len(self.ip[UDP]) + 20 : -4])

    @property
    def payload(self) -> bytes:
        reth = 16 if self.bth.opcode in {FIRST, ONLY} else 0
        return self.body[reth : len(self.body) - self.bth.padcount]


@dataclass
class Transfer:
    mtu: int
    total_bytes: int
    packets: list[Packet] = field(default_factory=list)
    gaps: int = 0
    gaps_overtaken: int = 0

    def sent_by(self, sender: str) -> list[Packet]:
        return [packet for packet in self.packets if packet.sender == sender]


def read_dump() -> Iterator[Transfer]:
    done = subprocess.run([PROGRAM, "--dump"], capture_output=True, text=True, check=True, timeout=60)
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "transfer":
            transfer = Transfer(int(words[1]), int(words[2]))
        elif words[0] == "gaps":
            transfer.gaps, transfer.gaps_overtaken = int(words[1]), int(words[2])
            yield transfer
        else:
            transfer.packets.append(Packet(words[0], words[1], bytes.fromhex(words[2])))


@pytest.fixture(scope="module")
def transfers() -> list[Transfer]:
    return list(read_dump())


@pytest.fixture(scope="module")
def packets(transfers: list[Transfer]) -> list[Packet]:
    return [packet for transfer in transfers for packet in transfer.packets]


def test_every_kind_of_packet_is_there(packets: list[Packet]) -> None:
    kinds = {(packet.ip.version, packet.bth.opcode, bool(packet.ip[UDP].chksum)) for packet in packets}
    assert kinds == set(itertools.product((4, 6), WRITES | {ACKNOWLEDGE, CNP}, (False, True)))
    lengths = {(packet.ip.version, packet.bth.opcode, len(packet.payload) % 4) for packet in packets}
    for version, opcode, remainder in itertools.product((4, 6), (LAST, ONLY), range(4)):
        assert (version, opcode, remainder) in lengths


def test_the_icrc_is_the_one_that_scapy_computes(packets: list[Packet]) -> None:
    for packet in packets:
        assert packet.bth.compute_icrc(b"") == packet.raw[-4:]


def test_the_udp_checksum_is_the_one_that_scapy_computes(packets: list[Packet]) -> None:
    for packet in packets:
        claimed = packet.ip[UDP].chksum
        if claimed:
            copy = packet.ip.copy()
            del copy[UDP].chksum
            assert type(copy)(bytes(copy))[UDP].chksum == claimed


def test_headers(packets: list[Packet]) -> None:
    for packet in packets:
        ends = ("10.1.0.1", "10.2.0.3") if packet.ip.version == 4 else ("fd0c:0:1::1", "fd0c:0:2::3")
        turned = packet.sender == "responder"
        assert (packet.ip.src, packet.ip.dst) == (ends[turned], ends[not turned])
        assert (packet.ip[UDP].sport, packet.ip[UDP].dport) == (49152 + turned, 4791)
        assert packet.ip[UDP].len == len(packet.ip[UDP])
        assert packet.bth.dqpn == (REQUESTER_QPN if turned else RESPONDER_QPN)
        assert packet.bth.pkey == 0xFFFF
        assert packet.bth.version == 0
        if packet.ip.version == 4:
            assert (packet.ip.len, packet.ip.id, packet.ip.flags) == (len(packet.raw), 0, "DF")
            assert packet.ip.tos == 26 << 2 | 3
        else:
            assert (packet.ip.plen, packet.ip.fl, packet.ip.tc) == (
                len(packet.raw) - 40,
                0x12345,
                26 << 2 | 3,
            )


def test_messages_are_cut_into_packets_of_the_mtu(transfers: list[Transfer]) -> None:
    for transfer in transfers:
        writes = {packet.bth.psn: packet for packet in transfer.sent_by("requester")}
        ordered = [writes[(FIRST_PSN + sequence) % PSNS] for sequence in range(len(writes))]
        assert sum(len(packet.payload) for packet in ordered) == transfer.total_bytes
        inside = 0  # bytes of the message that are still to come
        for packet in ordered:
            opcode = packet.bth.opcode
            assert (inside == 0) is (opcode in {FIRST, ONLY})
            if inside == 0:
                inside = int.from_bytes(packet.body[12:16], "big")  # the length in the RETH
            inside -= len(packet.payload)
            assert (inside == 0) is (opcode in {LAST, ONLY})
            if opcode in {FIRST, MIDDLE}:
                assert len(packet.payload) == transfer.mtu


def with_fate(transfers: list[Transfer], fate: str) -> list[Transfer]:
    return [
        transfer
        for transfer in transfers
        if fate in {packet.fate for packet in transfer.sent_by("requester")}
    ]


def test_reordering_is_told_from_loss(transfers: list[Transfer]) -> None:
    lossy, reordered = with_fate(transfers, "lost"), with_fate(transfers, "late")
    assert sum(transfer.gaps for transfer in lossy) > 10
    assert all(transfer.gaps_overtaken == 0 for transfer in lossy)
    assert all(transfer.gaps_overtaken == transfer.gaps > 0 for transfer in reordered)


def test_a_lost_packet_is_asked_for_once_and_all_from_it_on_are_sent_again(transfers: list[Transfer]) -> None:
    naks = 0
    for transfer in with_fate(transfers, "lost"):
        lost_psn = None
        for packet, following in itertools.pairwise(transfer.packets):
            if packet.fate == "lost":
                lost_psn = packet.bth.psn
            if packet.bth.opcode == ACKNOWLEDGE and packet.ip[AETH].syndrome == NAK_SEQUENCE:
                naks += 1
                assert packet.bth.psn == lost_psn
                assert following.bth.psn == lost_psn
    assert naks > 10


def test_everything_is_acknowledged_in_the_end(transfers: list[Transfer]) -> None:
    for transfer in transfers:
        acks = [packet for packet in transfer.sent_by("responder") if packet.bth.opcode == ACKNOWLEDGE]
        sent = {packet.bth.psn for packet in transfer.sent_by("requester")}
        assert acks[-1].ip[AETH].syndrome == ACK
        assert acks[-1].bth.psn == (FIRST_PSN + len(sent) - 1) % PSNS
        assert acks[-1].ip[AETH].msn == sum(
            packet.bth.opcode in {LAST, ONLY}
            for packet in {packet.bth.psn: packet for packet in transfer.sent_by("requester")}.values()
        )


def test_a_congestion_notification_is_what_scapy_makes(packets: list[Packet]) -> None:
    found = [packet for packet in packets if packet.bth.opcode == CNP]
    assert found
    for packet in found:
        assert (packet.bth.becn, packet.bth.fecn, packet.bth.psn) == (1, 0, 0)
        assert packet.body == bytes(16)
