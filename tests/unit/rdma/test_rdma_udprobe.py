"""Probes by UD queue pair over a stand-in for the network: what is answered, refused, counted and given up."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ud_fakes import ALWAYS_READABLE, DELAY_NS, KEY, A, B, Link, Pair

from cwdp.errors import ConfigError
from cwdp.rdma import udwire
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.udlink import read_grh
from cwdp.rdma.udprobe import REPLY_TIMEOUT_NS, Received, UdPath
from cwdp.rdma.udwire import UNSYNCED, Head, Kind, Message, WireError
from cwdp.shared.bus.messages import UdAddress


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_round_trip_without_the_time_at_the_far_end(pair: Pair) -> None:
    (sample,) = pair.exchange()
    assert sample.path == pair.path
    assert sample.rtt_ns is not None
    assert 2 * DELAY_NS <= sample.rtt_ns <= 2 * DELAY_NS + 100
    assert (pair.a.counters["answered"], pair.b.counters["reflected"]) == (1, 1)


def test_each_way_takes_its_own_source_port(pair: Pair) -> None:
    pair.exchange()
    assert [(gid, sport) for gid, sport, _ in pair.network.log] == [
        (gid_bytes(B), 50_001),
        (gid_bytes(A), 50_002),
    ]


def test_many_paths_at_once(pair: Pair) -> None:
    paths = [UdPath(pair.b.address, sport, 60_000) for sport in range(50_000, 50_064)]
    pair.a.send(paths)
    pair.b.poll()
    samples = pair.a.poll()
    assert [sample.path for sample in samples] == paths
    assert all(a.sent_ns < b.sent_ns for a, b in pairwise(samples))


def test_no_answer_is_a_loss_once_its_time_is_over(pair: Pair) -> None:
    pair.network.lose = True
    pair.a.send([pair.path])
    assert pair.a.poll() == []
    pair.network.clock.now_ns += REPLY_TIMEOUT_NS
    (sample,) = pair.a.poll()
    assert (sample.path, sample.rtt_ns) == (pair.path, None)
    assert pair.links[0].suspected == [gid_bytes(B)]
    assert pair.a.poll() == []


def test_an_answer_that_comes_late_is_not_believed(pair: Pair) -> None:
    pair.a.send([pair.path])
    pair.network.clock.now_ns += REPLY_TIMEOUT_NS
    assert [sample.rtt_ns for sample in pair.a.poll()] == [None]
    pair.b.poll()
    assert pair.a.poll() == []
    assert pair.a.counters["unexpected_reply"] == 1


def test_what_could_not_be_sent_says_nothing_about_the_path(pair: Pair) -> None:
    pair.network.refuse = True
    pair.a.send([pair.path])
    pair.network.clock.now_ns += REPLY_TIMEOUT_NS
    assert pair.a.poll() == []
    assert (pair.a.counters["sent"], pair.a.counters["unsent"]) == (0, 1)


def test_a_second_copy_of_an_answer_is_no_second_sample(pair: Pair) -> None:
    pair.exchange()
    data = pair.network.log[-1][2]
    pair.links[0].queue.append(Received(pair.network.clock(), gid_bytes(B), data))
    assert pair.a.poll() == []
    assert pair.a.counters["unexpected_reply"] == 1


def test_an_answer_from_somebody_else_is_not_believed(pair: Pair) -> None:
    pair.a.send([pair.path])
    pair.b.poll()
    answer = pair.links[0].queue.pop()
    pair.links[0].queue.append(replace(answer, source=gid_bytes("fd00:3::1")))
    assert pair.a.poll() == []
    assert pair.a.counters["unexpected_reply"] == 1


@pytest.mark.parametrize("byte", range(udwire.MESSAGE_BYTES))
def test_no_byte_of_a_message_can_be_changed(pair: Pair, byte: int) -> None:
    def change(link: Link) -> None:
        message = link.queue.pop()
        data = bytearray(message.data)
        data[byte] ^= 0x40
        link.queue.append(replace(message, data=bytes(data)))

    pair.a.send([pair.path])
    change(pair.links[1])
    pair.b.poll()
    assert pair.b.counters["reflected"] == 0
    pair.a.send([pair.path])
    pair.b.poll()
    change(pair.links[0])
    assert pair.a.poll() == []
    assert pair.a.counters["answered"] == 0


def test_a_request_sent_on_to_another_host_is_not_answered(pair: Pair) -> None:
    pair.a.send([pair.path])
    stolen = pair.links[1].queue.pop()
    pair.links[1].queue.append(replace(stolen, source=gid_bytes("fd00:3::1")))
    pair.b.poll()
    assert pair.b.counters["bad_mac"] == 1


def test_a_reply_port_that_is_none_is_not_used(pair: Pair) -> None:
    pair.a._send_one(replace(pair.path, reply_sport=80))
    pair.b.poll()
    assert (pair.b.counters["unreflected"], len(pair.network.log)) == (1, 1)


def test_keys_that_differ() -> None:
    unknown = Pair({2: KEY})
    unknown.exchange()
    assert unknown.b.counters["unknown_key"] == 1
    wrong = Pair({1: bytes(16)})
    wrong.exchange()
    assert wrong.b.counters["bad_mac"] == 1


@given(st.binary(max_size=80))
def test_whatever_arrives_is_counted_and_nothing_else(data: bytes) -> None:
    pair = Pair()
    pair.links[0].queue.append(Received(5, gid_bytes(B), data))
    assert pair.a.poll() == []
    assert sum(pair.a.counters.values()) == 1


def test_ports_are_refused_before_anything_is_sent(pair: Pair) -> None:
    good = pair.path
    few = UdAddress(B, 0x22, (50_002,))
    for bad in (
        replace(good, sport=4791),
        replace(good, reply_sport=80),
        replace(good, peer=few, reply_sport=50_003),
    ):
        with pytest.raises(ConfigError):
            pair.a.send([good, bad])
    assert pair.network.log == []


def test_the_prober_is_watched_and_closed_by_way_of_its_link(pair: Pair) -> None:
    assert pair.a.fileno() == ALWAYS_READABLE
    pair.a.close()
    assert pair.links[0].closed


@given(
    st.builds(
        Head,
        kind=st.sampled_from(Kind),
        key_id=st.integers(0, 255),
        qpn=st.integers(0, (1 << 24) - 1),
        seq=st.integers(0, (1 << 32) - 1),
        sport=st.integers(0, 65535),
        reply_sport=st.integers(0, 65535),
    )
)
def test_heads_survive_the_wire(head: Head) -> None:
    signed = udwire.sign_request(KEY, head, bytes(16), bytes(16), lambda: 42)
    assert Message.unpack(signed.data) == Message(head, (42, 0), UNSYNCED, signed.mac, signed.data[:-8])


def test_other_versions_are_refused() -> None:
    signed = udwire.sign_request(KEY, Head(Kind.REQUEST, 1, 2, 3, 4, 5), bytes(16), bytes(16), lambda: 0)
    for wrong in (b"XX" + signed.data[2:], signed.data[:2] + b"\x09" + signed.data[3:], signed.data[:-1]):
        with pytest.raises(WireError):
            Message.unpack(wrong)


def test_addresses_in_the_place_of_the_grh() -> None:
    v6 = b"\x60" + bytes(7) + gid_bytes("fd00:1::1") + gid_bytes(B)
    assert read_grh(v6) == (gid_bytes("fd00:1::1"), gid_bytes(B))
    v4 = bytes(20) + b"\x45" + bytes(11) + bytes([10, 0, 1, 1]) + bytes([10, 0, 2, 1])
    assert read_grh(v4) == (gid_bytes("::ffff:10.0.1.1"), gid_bytes("::ffff:10.0.2.1"))
    assert read_grh(bytes(40)) is None
