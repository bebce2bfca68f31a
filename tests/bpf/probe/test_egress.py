"""tc egress: the agent's templates are stamped and signed, all else leaves as it came."""

import itertools
import time
from dataclasses import dataclass, field

import pytest
from machine import TC_ACT_UNSPEC, Machine
from probes import KEY_ID, Probe, link, network, rebuilt, request, signed, transport
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet, Raw

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Reason, SlotState

pytestmark = pytest.mark.kernel


@dataclass(frozen=True)
class Row:
    description: str
    packet: Packet
    counted: dict[Reason, int] = field(default_factory=dict)
    mark: int = abi.MARK


SIGNED = [
    Row(f"IPv{version}, {vlans} VLAN tags, position {position}", packet, {Reason.PROBE_SENT: 1})
    for version, vlans, position in itertools.product((4, 6), (0, 1, 2), (0, 1))
    for packet in (request(version, vlans, seq=99, path=3, pair_position=position),)
]
BAD_TEMPLATE = {Reason.PROBE_BAD_TEMPLATE: 1}
UNTOUCHED = [
    Row("without the mark", request(), mark=0),
    Row("with another mark", request(), mark=abi.MARK ^ 1),
    Row("ARP without the mark", link() / Raw(bytes(46)), mark=0),
    Row("marked, but not IP", link() / Raw(bytes(46)), BAD_TEMPLATE),
    Row("marked, another version", request(version=2), BAD_TEMPLATE),
    Row("marked, a reply", request(kind=2), BAD_TEMPLATE),
    Row("marked, no magic", request(magic=0x43574451), BAD_TEMPLATE),
    Row(
        "marked, another opcode",
        rebuilt(link() / network() / transport(opcode=0x0A) / bytes(Probe())),
        BAD_TEMPLATE,
    ),
    Row(
        "marked, another queue pair", rebuilt(link() / network() / transport(dqpn=1) / Probe()), BAD_TEMPLATE
    ),
    Row("marked, another port", rebuilt(link() / network() / transport(dport=4790) / Probe()), BAD_TEMPLATE),
    Row("marked, three VLAN tags", rebuilt(link(2) / bytes(request(4, 1))[14:]), BAD_TEMPLATE),
    Row("a key that is not there", request(key_id=KEY_ID + 1), {Reason.PROBE_NO_KEY: 1}),
    Row("a key of the same index", request(key_id=KEY_ID + 2), {Reason.PROBE_NO_KEY: 1}),
]


@pytest.mark.parametrize("row", SIGNED, ids=lambda row: row.description)
def test_stamps_and_signs(dataplane: Machine, row: Row) -> None:
    before = time.monotonic_ns()
    run = dataplane.egress(row.packet, row.mark)
    after = time.monotonic_ns()
    t1 = run.dissected[Probe].t1
    assert before <= t1 <= after
    assert run.packet == bytes(signed(row.packet, t1))
    assert (run.verdict, run.counted) == (TC_ACT_UNSPEC, row.counted)
    assert dataplane.state(99) == (99, SlotState.SENT)
    slot = dataplane.slot(99)
    assert slot["t1"] == t1
    assert int(slot["request_mac"]).to_bytes(8, "little") == run.packet[-12:-4]


@pytest.mark.parametrize("row", UNTOUCHED, ids=lambda row: row.description)
def test_leaves_alone(dataplane: Machine, row: Row) -> None:
    run = dataplane.egress(row.packet, row.mark)
    assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, bytes(row.packet), row.counted)
    assert not dataplane.maps.slots["tag"].any()


@pytest.mark.parametrize("version", [4, 6])
def test_refuses_a_template_cut_short(dataplane: Machine, version: int) -> None:
    whole = bytes(request(version, vlans=1))
    for length in range(15, len(whole)):
        run = dataplane.egress(whole[:length])
        assert (run.packet, run.counted) == (whole[:length], BAD_TEMPLATE), f"cut to {length} bytes"


def test_time_goes_forward(dataplane: Machine) -> None:
    times = [dataplane.egress(request(seq=n)).dissected[Probe].t1 for n in range(50)]
    assert times == sorted(set(times))


def test_a_slot_is_taken_over_by_the_next_round(dataplane: Machine) -> None:
    dataplane.egress(request(seq=5))
    dataplane.egress(request(seq=5 + abi.SLOTS))
    assert dataplane.state(5) == (5 + abi.SLOTS, SlotState.SENT)


def test_the_highest_sequence_number(dataplane: Machine) -> None:
    dataplane.egress(request(seq=0xFFFFFFFF))
    assert dataplane.state(0xFFFFFFFF) == (0xFFFFFFFF, SlotState.SENT)


def test_signs_with_each_of_two_keys(dataplane: Machine) -> None:
    other = bytes(range(100, 116))
    dataplane.maps.set_key(KEY_ID + 1, other)
    packet = request(key_id=KEY_ID + 1)
    run = dataplane.egress(packet)
    assert run.packet == bytes(signed(packet, run.dissected[Probe].t1, other))
    assert dataplane.egress(request()).counted == {Reason.PROBE_SENT: 1}


def test_scapy_reads_what_leaves(dataplane: Machine) -> None:
    packet = dataplane.egress(request()).dissected
    assert packet[UDP].chksum == 0
    assert rebuilt(packet)[IP].chksum == packet[IP].chksum
