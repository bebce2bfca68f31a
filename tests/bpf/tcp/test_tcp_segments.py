"""Segments of steered connections leave with the ports of their path, and come in with their own: packet by packet."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from machine import TC_ACT_UNSPEC, XDP_DROP, XDP_PASS, XDP_TX, Machine
from probes import network, rebuilt
from scapy.layers.inet import TCP, IPOption_NOP
from scapy.layers.inet6 import IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from segments import PORTS, announcement, connection, has_right_checksum, on_the_wire, probe, quoting, segment

from cwdp.agent.liveness.failover import PathEvents
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, Position, Reason
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.steering.tcp import LEASE_NS, TcpConnection, TcpSteer, TcpSteering
from cwdp.errors import SteeringError

pytestmark = pytest.mark.kernel

SPORT, BACKUP = 50_001, 60_002
FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])
ALIKE = (PORTS[0] - 1, PORTS[1] + 1)
"""The ports of another connection whose sum is the same."""


@pytest.fixture
def steering(dataplane: Machine) -> Iterator[TcpSteering]:
    made = TcpSteering(dataplane.maps)
    yield made
    made.reconcile({})
    for one in made.all():
        made.unset(one)
    made.forget_silent(2**62)


def confirm(dataplane: Machine, number: int = 1) -> None:
    """As if the far end had just said that it restores the ports."""
    dataplane.maps.tcp_conns["confirmed_ns"][number] = time.monotonic_ns()


def number_of(dataplane: Machine) -> int:
    """Of the only connection."""
    (number,) = np.flatnonzero(dataplane.maps.tcp_conns["flags"])
    return int(number)


def steer(
    dataplane: Machine, steering: TcpSteering, wanted: TcpSteer, connected: TcpConnection | None = None
) -> None:
    steering.set(connected or connection(), wanted)
    confirm(dataplane, number_of(dataplane))


@FAMILIES
@pytest.mark.parametrize("vlans", [0, 1, 2])
def test_a_segment_bears_the_ports_of_its_path(
    dataplane: Machine, steering: TcpSteering, ip_version: int, vlans: int
) -> None:
    steer(dataplane, steering, TcpSteer(SPORT), connection(ip_version))
    packet = segment(ip_version, vlans)
    run = dataplane.leave(packet)
    assert (run.verdict, run.counted) == (TC_ACT_UNSPEC, {Reason.TCP_STEERED: 1})
    assert run.packet == on_the_wire(packet, SPORT)
    assert has_right_checksum(Ether(run.packet))


@FAMILIES
@pytest.mark.parametrize("vlans", [0, 1, 2])
def test_and_is_given_its_own_back(
    dataplane: Machine, steering: TcpSteering, ip_version: int, vlans: int
) -> None:
    assert dataplane.ingress(announcement(ip_version)).counted == {
        Reason.TCP_ANNOUNCED: 1,
        Reason.REQUEST_REFLECTED: 1,
    }
    packet = segment(ip_version, vlans)
    for sport in (SPORT, BACKUP, 0xFFFF, 0xC000):
        run = dataplane.ingress(on_the_wire(packet, sport))
        assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(packet), {Reason.TCP_RESTORED: 1})


@FAMILIES
def test_a_bare_acknowledgement(dataplane: Machine, steering: TcpSteering, ip_version: int) -> None:
    """Ends with its TCP header, so nothing lies where a probe would be."""
    dataplane.ingress(announcement(ip_version))
    packet = segment(ip_version, options=[], flags="A")
    packet[TCP].remove_payload()
    packet = Ether(bytes(packet))
    run = dataplane.ingress(on_the_wire(packet, SPORT))
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(packet), {Reason.TCP_RESTORED: 1})


@FAMILIES
def test_headers_outside_the_linear_part(dataplane: Machine, steering: TcpSteering, ip_version: int) -> None:
    dataplane.ingress(announcement(ip_version))
    packet = segment(ip_version)
    for linear in range(14, 100):
        run = dataplane.ingress(on_the_wire(packet, SPORT), linear)
        assert (run.packet, run.counted) == (bytes(packet), {Reason.TCP_RESTORED: 1}), linear


@FAMILIES
def test_every_sum_of_ports_survives(dataplane: Machine, steering: TcpSteering, ip_version: int) -> None:
    """Also those at which one's complement arithmetic has two zeros."""
    for ports in (
        (1, 1),
        (0xFFFD, 1),
        (0xFFFF, 0xFFFE),
        (0xFFFF, 1),
        (4791, SPORT),
        (SPORT, 4791),
        (0x8000, 0x7FFE),
    ):
        steering.set(connection(ip_version, ports), TcpSteer(SPORT))
        confirm(dataplane, number_of(dataplane))
        dataplane.ingress(announcement(ip_version, ports))
        packet = segment(ip_version, ports=ports)
        wire = dataplane.leave(packet)
        assert wire.packet == on_the_wire(packet, SPORT)
        assert has_right_checksum(wire.dissected)
        assert dataplane.ingress(wire.packet).packet == bytes(packet)
        steering.unset(connection(ip_version, ports))


@pytest.mark.parametrize("ports", [False, True])
def test_the_flow_label(dataplane: Machine, steering: TcpSteering, ports: bool) -> None:
    steer(dataplane, steering, TcpSteer(SPORT, ports=ports, flow_label=True), connection(6))
    packet = segment(6)
    out = Ether(dataplane.leave(packet).packet)
    assert out["IPv6"].fl == SPORT & 0x3FFF
    out["IPv6"].fl = packet["IPv6"].fl
    assert bytes(out) == (on_the_wire(packet, SPORT) if ports else bytes(packet))


def test_many_segments_in_one_buffer(dataplane: Machine, steering: TcpSteering) -> None:
    steer(dataplane, steering, TcpSteer(SPORT))
    packet = segment()
    run = dataplane.leave(packet, gso_size=100)
    assert (run.packet, run.counted) == (on_the_wire(packet, SPORT), {Reason.TCP_STEERED: 1})


@FAMILIES
def test_the_sum_that_a_nic_left_stays_right(
    dataplane: Machine, steering: TcpSteering, ip_version: int
) -> None:
    steer(dataplane, steering, TcpSteer(SPORT), connection(ip_version))
    packet = segment(ip_version)
    assert dataplane.leave(packet, summed=True).packet == on_the_wire(packet, SPORT)


@pytest.mark.parametrize("flags", ["A", "FA", "FPA", "PAE", "PAC", "PAEC", "PAN"])
def test_flags_that_do(dataplane: Machine, steering: TcpSteering, flags: str) -> None:
    """The last ones are those of congestion (RFC 3168 and 9768)."""
    steer(dataplane, steering, TcpSteer(SPORT))
    dataplane.ingress(announcement())
    packet = segment(flags=flags)
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (on_the_wire(packet, SPORT), {Reason.TCP_STEERED: 1})
    assert dataplane.ingress(run.packet).packet == bytes(packet)


@FAMILIES
@pytest.mark.parametrize("body", [b"", b"?"], ids=["window probe", "keepalive"])
def test_what_says_again_the_byte_before(
    dataplane: Machine, steering: TcpSteering, ip_version: int, body: bytes
) -> None:
    """It leaves by the backup, as data does, where the path is silent."""
    steer(dataplane, steering, TcpSteer(SPORT, BACKUP), connection(ip_version))
    dataplane.ingress(announcement(ip_version))
    paths = dataplane.maps.paths
    numbers = {int(port): n for n, port in enumerate(paths["sport"]) if port}
    now_ns = time.monotonic_ns()
    paths["waiting_since_ns"][numbers[SPORT]], paths["unanswered"][numbers[SPORT]] = now_ns - 10**9, 100
    paths["last_answer_ns"][numbers[BACKUP]] = paths["answered_sent_ns"][numbers[BACKUP]] = now_ns
    packet = segment(ip_version, flags="A", seq=12344)
    packet[TCP].remove_payload()
    packet = rebuilt(Ether(bytes(packet / Raw(body) if body else packet)))
    run = dataplane.leave(packet)
    assert (run.packet, run.counted[Reason.TCP_STEERED]) == (on_the_wire(packet, BACKUP), 1)
    assert dataplane.ingress(run.packet).packet == bytes(packet)


@FAMILIES
@pytest.mark.parametrize("vlans", [1, 2])
def test_many_segments_in_one_buffer_behind_tags(
    dataplane: Machine, steering: TcpSteering, ip_version: int, vlans: int
) -> None:
    steer(dataplane, steering, TcpSteer(SPORT), connection(ip_version))
    packet = segment(ip_version, vlans)
    run = dataplane.leave(packet, gso_size=100)
    assert (run.packet, run.counted) == (on_the_wire(packet, SPORT), {Reason.TCP_STEERED: 1})
    number = number_of(dataplane)
    ip_bytes = len(packet) - 14 - 4 * vlans
    assert dataplane.maps.tcp_conns["bytes"][number] == ip_bytes


@pytest.mark.parametrize("flags", ["S", "SA", "R", "RA", "P", "", "PAU"])
def test_flags_that_bear_no_ports(dataplane: Machine, steering: TcpSteering, flags: str) -> None:
    steer(dataplane, steering, TcpSteer(SPORT))
    packet = bytes(segment(flags=flags))
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_CANNOT_BEAR: 1})


def test_an_urgent_pointer_without_its_flag_is_left(dataplane: Machine, steering: TcpSteering) -> None:
    steer(dataplane, steering, TcpSteer(SPORT))
    packet = bytes(segment(urgptr=1))
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_CANNOT_BEAR: 1})


HIDDEN = {
    "IP options": segment(ip=network(options=[IPOption_NOP()] * 4)),
    "the first fragment": segment(ip=network(flags="MF")),
    "a later fragment": segment(ip=network(frag=100)),
    "an IPv6 fragment": segment(ip=network(6) / IPv6ExtHdrFragment(m=1)),
    "destination options": segment(ip=network(6) / IPv6ExtHdrDestOpt()),
    "hop-by-hop options": segment(ip=network(6) / IPv6ExtHdrHopByHop()),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_headers_that_are_not_followed(dataplane: Machine, steering: TcpSteering, what: str) -> None:
    packet = bytes(HIDDEN[what])
    for ip_version in (4, 6):
        steering.set(connection(ip_version), TcpSteer(SPORT))
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_LEFT_ALONE: 1})


def test_nothing_is_counted_where_nothing_is_steered(dataplane: Machine, steering: TcpSteering) -> None:
    for packet in (*HIDDEN.values(), segment()):
        run = dataplane.leave(packet)
        assert (run.packet, run.counted) == (bytes(packet), {})


def test_another_connection_passes(dataplane: Machine, steering: TcpSteering) -> None:
    """One of the same sum of ports even."""
    steer(dataplane, steering, TcpSteer(SPORT))
    for ports in (ALIKE, PORTS[::-1], (PORTS[0], PORTS[1] + 1)):
        run = dataplane.leave(segment(ports=ports))
        assert (run.packet, run.counted) == (bytes(segment(ports=ports)), {})


def test_before_the_far_end_has_confirmed(dataplane: Machine, steering: TcpSteering) -> None:
    steering.set(connection(), TcpSteer(SPORT))
    packet = bytes(segment())
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_NOT_CONFIRMED: 1})


def test_and_once_it_is_silent(dataplane: Machine, steering: TcpSteering) -> None:
    steer(dataplane, steering, TcpSteer(SPORT))
    dataplane.maps.tcp_conns["confirmed_ns"] -= np.uint64(LEASE_NS + 10**9)
    packet = bytes(segment())
    run = dataplane.leave(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_NOT_CONFIRMED: 1})


def test_segments_of_no_announced_connection(dataplane: Machine, steering: TcpSteering) -> None:
    """From a host that announces they are dropped: the stack would answer with a reset. Others are nobody's business."""
    packet = on_the_wire(segment(), SPORT)
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {})
    dataplane.ingress(announcement(ports=(1, 2)))
    run = dataplane.ingress(packet)
    assert (run.verdict, run.counted) == (XDP_DROP, {Reason.TCP_UNKNOWN: 1})


@pytest.mark.parametrize("flags", ["S", "A", "PA", "FA", "R", "PAU"])
def test_who_listens_on_the_port_of_probes_is_not_harmed(
    dataplane: Machine, steering: TcpSteering, flags: str
) -> None:
    dataplane.ingress(announcement())
    packet = bytes(segment(ports=(SPORT, abi.ROCE_PORT), flags=flags, urgptr=7 if "U" in flags else 0))
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {})


def test_another_connection_of_that_sum_has_to_wait(dataplane: Machine, steering: TcpSteering) -> None:
    dataplane.ingress(announcement())
    run = dataplane.ingress(announcement(ports=ALIKE))
    assert (run.verdict, run.counted) == (XDP_PASS, {Reason.TCP_ANNOUNCE_REFUSED: 1})
    assert dataplane.ingress(on_the_wire(segment(), SPORT)).packet == bytes(segment())
    steering.set(connection(), TcpSteer(SPORT))
    with pytest.raises(SteeringError, match="would look like"):
        steering.set(connection(ports=ALIKE), TcpSteer(SPORT))


def test_a_forged_announcement(dataplane: Machine, steering: TcpSteering) -> None:
    """The ports are signed."""
    packet = bytearray(bytes(announcement()))
    packet[14 + 20 + 20 + 20] ^= 1
    assert dataplane.ingress(bytes(packet)).counted == {Reason.REQUEST_BAD_MAC: 1}


@FAMILIES
@pytest.mark.parametrize("byte", range(8))
def test_forged_ports(dataplane: Machine, steering: TcpSteering, ip_version: int, byte: int) -> None:
    """Another's addresses or ports under a signature for these; nothing is noted."""
    for start in (14 + (12 if ip_version == 4 else 8), 14 + (20 if ip_version == 4 else 40) + 20 + 20):
        packet = bytearray(bytes(announcement(ip_version)))
        packet[start + (byte if start < 40 else byte % 4)] ^= 0x40
        run = dataplane.ingress(bytes(packet))
        assert run.counted.keys() <= {Reason.REQUEST_BAD_MAC}
    assert (
        libbpf.hash_items(dataplane.maps.tcp_in_fd, abi.TCP_WIRE_KEY.itemsize, abi.TCP_PORTS.itemsize) == []
    )


def test_an_announcement_does_not_replace_this_hosts_own_connection(
    dataplane: Machine, steering: TcpSteering
) -> None:
    """From a host that says it has this one's address."""
    steering.set(connection(), TcpSteer(SPORT))
    assert dataplane.ingress(announcement(ports=ALIKE)).counted == {Reason.TCP_ANNOUNCE_REFUSED: 1}
    dataplane.ingress(announcement())
    assert steering.forget_silent(2**62) == 0
    run = dataplane.ingress(quoting(quoted(4), 4, 200))
    assert run.counted == {Reason.TCP_QUOTE_RESTORED: 1}


def test_an_answer_is_none_for_the_next_of_that_number(dataplane: Machine, steering: TcpSteering) -> None:
    """The far end restores the ports of the one that was announced; of the other it knows nothing."""
    steering.set(connection(), TcpSteer(SPORT))
    number = number_of(dataplane)
    request = dataplane.egress(probe(pair_position=Position.CONNECTION, path=number, seq=6))
    reply = dataplane.ingress(request.packet)
    steering.unset(connection())
    other = PORTS[0] + 1, PORTS[1]
    steering.set(connection(ports=other), TcpSteer(SPORT))
    assert number_of(dataplane) == number
    assert dataplane.ingress(reply.packet).counted == {Reason.REPLY_ACCEPTED: 1}
    assert dataplane.leave(segment(ports=other)).counted == {Reason.TCP_NOT_CONFIRMED: 1}
    request = dataplane.egress(probe(pair_position=Position.CONNECTION, path=number, seq=7))
    dataplane.ingress(dataplane.ingress(request.packet).packet)
    assert dataplane.leave(segment(ports=other)).counted == {Reason.TCP_STEERED: 1}


@FAMILIES
def test_egress_announces_with_the_connections_own_ports(
    dataplane: Machine, steering: TcpSteering, ip_version: int
) -> None:
    """Here the far end is the same host, which knows its own connections."""
    steering.set(connection(ip_version), TcpSteer(SPORT))
    number = number_of(dataplane)
    run = dataplane.egress(probe(ip_version, pair_position=Position.CONNECTION, path=number, seq=5))
    assert run.counted == {Reason.PROBE_SENT: 1}
    request = run.packet
    reply = dataplane.ingress(request)
    assert (reply.verdict, reply.counted) == (XDP_TX, {Reason.REQUEST_REFLECTED: 1})
    assert dataplane.ingress(reply.packet).counted == {Reason.REPLY_ACCEPTED: 1}
    assert dataplane.leave(segment(ip_version)).counted == {Reason.TCP_STEERED: 1}


@FAMILIES
def test_what_a_path_without_urgent_pointers_leaves_of_a_probe_is_none(
    dataplane: Machine, steering: TcpSteering, ip_version: int
) -> None:
    packet = announcement(ip_version)
    packet[TCP].urgptr = 0
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(packet), {})


def test_a_connection_with_the_sum_of_probes_is_left_alone(steering: TcpSteering) -> None:
    with pytest.raises(SteeringError, match="as those of probes do"):
        steering.set(connection(ports=(60_000, 5_535)), TcpSteer(SPORT))


@pytest.mark.parametrize("number", [0, 7, abi.TCP_CONNS])
def test_egress_announces_no_other(dataplane: Machine, steering: TcpSteering, number: int) -> None:
    run = dataplane.egress(probe(pair_position=Position.CONNECTION, path=number))
    assert run.counted == {Reason.TCP_BAD_CONNECTION: 1}


def quoted(ip_version: int) -> Packet:
    return Ether(on_the_wire(segment(ip_version), SPORT))


@FAMILIES
@pytest.mark.parametrize("linear", [None, 20])
def test_an_icmp_error_quotes_the_connection(
    dataplane: Machine, steering: TcpSteering, ip_version: int, linear: int | None
) -> None:
    """Its checksum, over what it quotes, is right before and afterwards."""
    steering.set(connection(ip_version), TcpSteer(SPORT))
    run = dataplane.ingress(quoting(quoted(ip_version), ip_version, 200), linear)
    assert (run.verdict, run.counted) == (XDP_PASS, {Reason.TCP_QUOTE_RESTORED: 1})
    assert run.packet == _with_its_checksum(
        quoting(segment(ip_version), ip_version, 200), run.packet, ip_version
    )


def _with_its_checksum(expected: bytes, given: bytes, ip_version: int) -> bytes:
    """The two must agree in the ICMP checksum modulo 2^16 - 1; the rest byte by byte."""
    at = 14 + (20 if ip_version == 4 else 40) + 2
    own, other = (int.from_bytes(frame[at : at + 2], "big") for frame in (expected, given))
    assert (own - other) % 0xFFFF == 0
    return expected[:at] + given[at : at + 2] + expected[at + 2 :]


@FAMILIES
def test_and_what_it_quotes_of_others_stays(
    dataplane: Machine, steering: TcpSteering, ip_version: int
) -> None:
    packet = quoting(quoted(ip_version), ip_version, 200)
    run = dataplane.ingress(packet)
    assert (run.packet, run.counted) == (packet, {Reason.TCP_QUOTE_UNKNOWN: 1})
    cut_off = (20 if ip_version == 4 else 40) + 19
    for others in (
        quoting(segment(ip_version), ip_version, 200),
        quoting(quoted(ip_version), ip_version, cut_off),
    ):
        run = dataplane.ingress(others)
        assert (run.packet, run.counted) == (others, {})


def test_a_connection_without_living_path_takes_its_own_ports(
    dataplane: Machine, steering: TcpSteering
) -> None:
    steer(dataplane, steering, TcpSteer(SPORT, BACKUP))
    paths = dataplane.maps.paths
    now_ns = time.monotonic_ns()
    for number in np.flatnonzero(paths["users"]):
        paths["waiting_since_ns"][number] = now_ns - 10**9
        paths["unanswered"][number] = 100
    run = dataplane.leave(segment())
    assert (run.packet, run.counted) == (bytes(segment()), {Reason.TCP_NO_PATH: 1})


def test_it_leaves_a_path_that_is_late_before_it_is_given_up(
    dataplane: Machine, steering: TcpSteering
) -> None:
    """Segments may come out of order; with half of `dead_after` gone the path is still up.

    A path that was never left counts as left when the machine came up, so `dead_after` is a part of that.
    """
    steer(dataplane, steering, TcpSteer(SPORT, BACKUP))
    paths = dataplane.maps.paths
    (number,) = np.flatnonzero(paths["sport"] == SPORT)
    now_ns = time.monotonic_ns()
    dataplane.maps.control["dead_after_ns"] = min(60 * 10**9, now_ns // 8)
    paths["waiting_since_ns"][number], paths["unanswered"][number] = now_ns - 10**9, 2
    paths["slow_ns"][number] = 2 * 10**9
    assert dataplane.leave(segment()).packet == on_the_wire(segment(), SPORT)
    paths["slow_ns"][number] = 0
    assert dataplane.leave(segment()).packet == on_the_wire(segment(), BACKUP)
    assert paths["state"][number] == PathState.UP


def test_a_path_that_is_given_up_is_told_as_one_of_tcp(dataplane: Machine, steering: TcpSteering) -> None:
    events = PathEvents(dataplane.maps)
    steer(dataplane, steering, TcpSteer(SPORT, BACKUP))
    paths = dataplane.maps.paths
    now_ns = time.monotonic_ns()
    numbers = {int(port): n for n, port in enumerate(paths["sport"]) if port}
    dead, alive = numbers[SPORT], numbers[BACKUP]
    paths["waiting_since_ns"][dead], paths["unanswered"][dead] = now_ns - 10**9, 100
    paths["last_answer_ns"][alive] = paths["answered_sent_ns"][alive] = now_ns
    assert dataplane.leave(segment()).packet == on_the_wire(segment(), BACKUP)
    (event,) = events.take("h1", "roce0")
    assert event.path is not None
    assert (event.path.protocol, event.path.connections, event.path.queue_pairs) == (6, 1, 0)
    assert event.detail.startswith(f"TCP to 10.0.1.2 from port {SPORT}: silent for")
    assert "1 TCP connections take their backup" in event.detail
