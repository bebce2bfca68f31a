"""What is counted of a queue pair: by tables of packets and by several CPUs at once."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import roce
from machine import TC_ACT_UNSPEC, XDP_PASS, Machine, Run
from probes import SOURCES, SPORT
from scapy.layers.inet import IP
from scapy.packet import Packet

from cwdp.dataplane.abi import Direction, Nak
from cwdp.dataplane.addresses import words_address

pytestmark = pytest.mark.kernel

BOTH = pytest.mark.parametrize("direction", list(Direction), ids=["egress", "ingress"])
COUNTED = ("acks", "ce_marks", "cnps", "psn_retransmitted", "psn_gaps", "psn_reordered")
LAST = 0xFFFFFF
VLAN_HEADER_BYTES = 18
MINUTE_NS = 60 * 10**9
REPEATS = 2_000_000


def passing(dataplane: Machine, direction: Direction) -> Callable[[Packet], Run]:
    return dataplane.leave if direction == Direction.EGRESS else dataplane.ingress


def counts(dataplane: Machine, direction: Direction) -> dict[str, int]:
    """What is not zero of the only queue pair."""
    record = dataplane.qp(direction)
    return {name: int(record[name]) for name in COUNTED if record[name]}


def psns(*numbers: int, name: str = "RC_SEND_MIDDLE") -> list[Packet]:
    return [roce.data(name, psn=psn) for psn in numbers]


def reads(*numbers: int) -> list[Packet]:
    return psns(*numbers, name="RC_READ_REQUEST")


def responses(*numbers: int, name: str = "RC_READ_RESPONSE_MIDDLE") -> list[Packet]:
    return psns(*numbers, name=name)


@dataclass(frozen=True)
class Row:
    description: str
    packets: list[Packet]
    counted: dict[str, int] = field(default_factory=dict)


FAR = 1 << 16
"""So far apart are PSNs of one connection at most."""

FIRST, ONLY = "RC_READ_RESPONSE_FIRST", "RC_READ_RESPONSE_ONLY"
ARRIVALS = [
    Row("in order", psns(5, 6, 7)),
    Row("in order over the wrap", psns(LAST - 1, LAST, 0, 1)),
    Row("one missing", psns(5, 7), {"psn_gaps": 1}),
    Row("many missing", psns(5, 500), {"psn_gaps": 494}),
    Row("missing over the wrap", psns(LAST - 1, 2), {"psn_gaps": 3}),
    Row("two swapped", psns(5, 7, 6, 8), {"psn_gaps": 1, "psn_reordered": 1}),
    Row("a gap filled backwards", psns(5, 9, 8, 7, 6, 10), {"psn_gaps": 3, "psn_reordered": 3}),
    Row("swapped over the wrap", psns(LAST, 1, 0), {"psn_gaps": 1, "psn_reordered": 1}),
    Row("the same again", psns(5, 6, 6), {"psn_retransmitted": 1}),
    Row("late, twice", psns(5, 7, 6, 6), {"psn_gaps": 1, "psn_reordered": 1, "psn_retransmitted": 1}),
    Row("before the first that was seen", psns(5, 4), {"psn_retransmitted": 1}),
    Row("all sent again after a gap", psns(5, 7, 8, 6, 7, 8), {
        "psn_gaps": 1, "psn_reordered": 1, "psn_retransmitted": 2}),
    Row("as late as is remembered", psns(100, 165, 102), {"psn_gaps": 64, "psn_reordered": 1}),
    Row("later than is remembered", psns(100, 166, 101), {"psn_gaps": 65, "psn_retransmitted": 1}),
    Row("behind a read of many packets", [*psns(5), *reads(6), *psns(106)]),
    Row("behind two reads", [*reads(6), *reads(16), *psns(26, 27)]),
    Row("a read sent again", [*reads(6), *psns(16), *reads(6)], {"psn_retransmitted": 1}),
    Row("missing behind a send behind a read", [*reads(6), *psns(16, 18)], {"psn_gaps": 1}),
    Row("responses in order", [*responses(5, name=FIRST), *responses(6, 7)]),
    Row("a response missing", [*responses(5, name=FIRST), *responses(7)], {"psn_gaps": 1}),
    Row("a response again", responses(5, 6, 6), {"psn_retransmitted": 1}),
    Row("responses over the wrap", responses(LAST, 0, 1)),
    Row("responses to a later read", [*responses(5, 6), *responses(90, name=ONLY), *responses(95, name=FIRST)]),
    Row("requests beside responses", [*psns(900), *responses(5), *psns(901), *responses(6)]),
    Row("of XRC", psns(5, 7, 7, name="XRC_SEND_ONLY"), {"psn_gaps": 1, "psn_retransmitted": 1}),
    Row("of UC", psns(5, 7, name="UC_SEND_ONLY"), {"psn_gaps": 1}),
    Row("datagrams, whose PSNs are many senders'", psns(5, 900, 3, 3, name="UD_SEND_ONLY")),
    Row("acknowledgements, whose PSNs are the other side's", [
        roce.acknowledge(psn=n) for n in (5, 9, 9, 2)], {"acks": 4}),
    Row("atomic acknowledgements", psns(5, 900, 3, name="RC_ATOMIC_ACKNOWLEDGE")),
    Row("connected anew, behind", psns(FAR + 500, FAR + 501, 7, 8, 10, 9), {"psn_gaps": 1, "psn_reordered": 1}),
    Row("connected anew, ahead", psns(7, 8, FAR + 500, FAR + 502), {"psn_gaps": 1}),
    Row("connected anew behind a read", [*reads(FAR + 500), *psns(7, 9)], {"psn_gaps": 1}),
    Row("responses, connected anew", responses(FAR + 500, 7, 8, FAR + 500, FAR + 502), {"psn_gaps": 1}),
    Row("far back, as it may be", psns(FAR + 500, 501), {"psn_retransmitted": 1}),
    Row("far ahead, as it may be", psns(500, FAR + 501), {"psn_gaps": FAR}),
]  # fmt: skip
DEPARTURES = [
    Row("in order", psns(5, 6, 7)),
    Row("in order over the wrap", psns(LAST, 0, 1)),
    Row("one again", psns(5, 6, 6, 7), {"psn_retransmitted": 1}),
    Row("going back by three", psns(5, 6, 7, 8, 6, 7, 8, 9), {"psn_retransmitted": 3}),
    Row("going back over the wrap", psns(LAST, 0, 1, LAST, 0, 1, 2), {"psn_retransmitted": 3}),
    Row("behind a read of many packets", [*reads(6), *psns(106)]),
    Row("a read again", [*reads(6), *psns(106), *reads(6)], {"psn_retransmitted": 1}),
    Row("responses", responses(5, 6, 7, 6, 7, 8), {"psn_retransmitted": 2}),
    Row("requests beside responses", [*psns(900), *responses(5), *psns(901), *responses(6)]),
    Row("datagrams", psns(5, 900, 3, 3, name="UD_SEND_ONLY")),
    Row("acknowledgements", [roce.acknowledge(psn=n) for n in (5, 9, 9, 2)], {"acks": 4}),
    Row("connected anew, behind", psns(FAR + 500, FAR + 501, 7, 8, 7, 8, 9), {"psn_retransmitted": 2}),
    Row("connected anew, behind, over the wrap", psns(100, LAST - FAR, LAST - FAR + 1)),
    Row("far back, as it may be", psns(FAR + 500, 501, 502), {"psn_retransmitted": 2}),
]


@pytest.mark.parametrize("row", ARRIVALS, ids=lambda row: row.description)
def test_psns_that_arrive(dataplane: Machine, row: Row) -> None:
    for packet in row.packets:
        assert dataplane.ingress(packet).verdict == XDP_PASS
    assert counts(dataplane, Direction.INGRESS) == row.counted


@pytest.mark.parametrize("row", DEPARTURES, ids=lambda row: row.description)
def test_psns_that_leave(dataplane: Machine, row: Row) -> None:
    for packet in row.packets:
        assert dataplane.leave(packet).verdict == TC_ACT_UNSPEC
    assert counts(dataplane, Direction.EGRESS) == row.counted


NAKS = {
    0x20: Nak.RNR,
    0x3F: Nak.RNR,
    0x60: Nak.PSN_SEQUENCE,
    0x61: Nak.INVALID_REQUEST,
    0x62: Nak.REMOTE_ACCESS,
    0x63: Nak.REMOTE_OPERATION,
    0x64: Nak.OTHER,
    0x7F: Nak.OTHER,
}


@BOTH
@pytest.mark.parametrize("syndrome", NAKS, ids=hex)
def test_naks(dataplane: Machine, direction: Direction, syndrome: int) -> None:
    passing(dataplane, direction)(roce.acknowledge(syndrome))
    naks = dataplane.qp(direction)["naks"]
    assert {Nak(kind): int(n) for kind, n in enumerate(naks) if n} == {NAKS[syndrome]: 1}
    assert counts(dataplane, direction) == {}


@BOTH
@pytest.mark.parametrize("syndrome", [0x00, 0x1F])
def test_acknowledgements_with_any_credits(dataplane: Machine, direction: Direction, syndrome: int) -> None:
    passing(dataplane, direction)(roce.acknowledge(syndrome))
    assert counts(dataplane, direction) == {"acks": 1}


@BOTH
def test_acknowledgements_that_say_nothing(dataplane: Machine, direction: Direction) -> None:
    """Of a reserved kind, or cut off before they come to it."""
    passed = passing(dataplane, direction)
    passed(roce.acknowledge(0x40))
    for name in ("RC_ACKNOWLEDGE", "XRC_ACKNOWLEDGE"):
        passed(roce.headers_only(name))
    assert counts(dataplane, direction) == {}
    assert not dataplane.qp(direction)["naks"].any()
    assert dataplane.qp(direction)["packets"] == 3


@BOTH
@pytest.mark.parametrize("ip_version", [4, 6])
@pytest.mark.parametrize("ecn", [0, 1, 2, 3])
def test_congestion_experienced(dataplane: Machine, direction: Direction, ip_version: int, ecn: int) -> None:
    """Whatever the DSCP beside it."""
    passed = passing(dataplane, direction)
    for psn, dscp in enumerate((0, 26, 63)):
        packet = roce.data(ip_version=ip_version, psn=psn)
        setattr(packet[1], "tos" if ip_version == 4 else "tc", dscp << 2 | ecn)
        passed(packet)
    assert counts(dataplane, direction) == ({"ce_marks": 3} if ecn == 3 else {})


@BOTH
def test_cnps(dataplane: Machine, direction: Direction) -> None:
    passing(dataplane, direction)(roce.congestion_notification())
    assert counts(dataplane, direction) == {"cnps": 1}


@BOTH
@pytest.mark.parametrize("ip_version", [4, 6])
def test_whose_it_is_and_how_much(dataplane: Machine, direction: Direction, ip_version: int) -> None:
    """By the far end's address; bytes are those of IP packets, without tags and trailers."""
    source, destination = SOURCES[ip_version]
    passed = passing(dataplane, direction)
    packets = [roce.data(payload=n, ip_version=ip_version, vlans=1) for n in (0, 17, 1024)]
    for packet in packets:
        passed(bytes(packet) + b"\0\0")
    record = dataplane.qp(direction)
    far = destination if direction == Direction.EGRESS else source
    assert str(words_address(record["key"]["addr"])) == far
    assert int(record["key"]["qpn"]) == roce.QPN
    assert int(record["packets"]) == len(packets)
    assert int(record["bytes"]) == sum(len(packet) - VLAN_HEADER_BYTES for packet in packets)
    assert int(record["used_sport"]) == SPORT
    assert 0 <= time.monotonic_ns() - int(record["last_seen_ns"]) < MINUTE_NS


@BOTH
def test_two_cpus_at_one_queue_pair(dataplane: Machine, direction: Direction) -> None:
    """No packet and no byte is lost between them."""
    packet = roce.data(payload=0)
    passing(dataplane, direction)(packet)
    threads = [threading.Thread(target=dataplane.repeat, args=(direction, packet, REPEATS)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = dataplane.qp(direction)
    expected = len(threads) * REPEATS + 1
    assert (int(record["packets"]), int(record["bytes"])) == (expected, expected * packet[IP].len)
