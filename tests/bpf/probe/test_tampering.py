"""Every byte of a probe changed on the way: either the probe is refused, or the byte says nothing that counts."""

import time
from collections.abc import Iterable

import pytest
from machine import XDP_DROP, XDP_PASS, XDP_TX, Machine
from probes import Probe, reflected, request
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

from cwdp.dataplane.abi import Reason, SlotState

pytestmark = pytest.mark.kernel

SEQ = 77
CHANGES = (0x01, 0x80, 0xFF)
UNSIGNED = {
    4: {"ip": [1, 4, 5, 6, 8, 10, 11], "addresses": range(12, 20)},
    6: {"ip": [0, 1, 2, 3, 7], "addresses": range(8, 40)},
}
"""Offsets in the IP header: traffic class, identification, don't fragment, flow label, TTL, checksum."""


def start(packet: Packet, layer: type[Packet]) -> int:
    """The offset of a layer in the frame."""
    return len(packet) - len(packet[layer])


def free_bytes(packet: Packet, probe_fields: Iterable[int], *, addresses: bool) -> set[int]:
    """Offsets of bytes that neither select the slot nor enter the sample; the network may change most."""
    version = 4 if IP in packet else 6
    ip, udp = start(packet, IP if version == 4 else IPv6), start(packet, UDP)
    bth, probe = start(packet, BTH), udp + 20
    free = {*range(12), 14, 15, *(ip + n for n in UNSIGNED[version]["ip"])}
    free |= {ip + n for n in UNSIGNED[version]["addresses"]} if addresses else set()
    free |= {udp + 6, udp + 7, bth + 1, bth + 2, bth + 3, *range(bth + 8, bth + 12)}
    return free | {probe + n for n in probe_fields} | set(range(len(packet) - 4, len(packet)))


def tampered(packet: Packet) -> Iterable[tuple[int, bytes]]:
    """The frame with one byte changed, for every byte and several changes."""
    whole = bytes(packet)
    for offset in range(len(whole)):
        for change in CHANGES:
            changed = bytearray(whole)
            changed[offset] ^= change
            yield offset, bytes(changed)


@pytest.mark.parametrize("version", [4, 6])
def test_request(dataplane: Machine, version: int) -> None:
    sent = dataplane.egress(request(version, 1, seq=SEQ)).dissected
    not_read = [7, *range(12, 16), *range(20, 25), *range(32, 56)]
    free = free_bytes(sent, not_read, addresses=False)
    for offset, packet in tampered(sent):
        run = dataplane.ingress(packet)
        if run.verdict == XDP_TX:
            assert offset in free, f"byte {offset} can be changed"
            probe = run.dissected[Probe]
            assert probe.mac == reflected(sent, probe.t2, probe.t3)[Probe].mac
        else:
            assert (run.verdict, run.packet) == (XDP_PASS, packet)
            assert sum(run.counted.values()) <= 1


@pytest.mark.parametrize("version", [4, 6])
def test_reply(dataplane: Machine, version: int) -> None:
    t1 = time.monotonic_ns() - 10**10
    sent = dataplane.expect_reply(request(version, 1, seq=SEQ), t1)
    reply = reflected(sent, t1 + 4_000, t1 + 5_000)
    not_read = [7, *range(12, 20), *range(24, 32)]
    free = free_bytes(reply, not_read, addresses=True)
    for offset, packet in tampered(reply):
        dataplane.expect_reply(request(version, 1, seq=SEQ), t1)
        run = dataplane.ingress(packet)
        if Reason.REPLY_ACCEPTED in run.counted:
            assert run.verdict == XDP_DROP
            assert offset in free, f"byte {offset} can be changed"
            slot = dataplane.slot(SEQ)
            assert (slot["t1"], slot["t2"], slot["t3"]) == (t1, t1 + 4_000, t1 + 5_000)
            assert slot["fwd_owd_ns"] == 4_000
        else:
            assert run.verdict in (XDP_PASS, XDP_DROP)
            assert run.packet == packet
            assert sum(run.counted.values()) <= 1
            assert dataplane.state(SEQ) == (SEQ, SlotState.SENT)
