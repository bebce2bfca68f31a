"""A million mutated frames through each program, judged one by one by the oracle beside it; more by `make fuzz`."""

import logging
import os
import secrets
import subprocess
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
import roce
from detours import OTHER_SOURCES, TwoNics, detoured
from machine import Machine, qp_key
from probes import SOURCES as ADDRESSES
from probes import link, network, rebuilt, reflected, request, signed, transport
from pyroute2 import IPRoute
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Padding, Raw
from wire import MTU

from cwdp.agent.goback.packets import acknowledgement, nak
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel
log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
FRAMES_VARIABLE = "CWDP_FUZZ_FRAMES"
"""In the environment: how many frames, beginning with a seed of chance, instead of the same million each time."""

T1 = 1_000_000_007
NEVER_NS = 1 << 62
STEERED = [
    (roce.data(), Steer(60_001)),
    (roce.data(dqpn=1), Steer(65_535)),
    (roce.data(ip_version=6), Steer(60_002, flow_label=True)),
    (roce.data(ip_version=6, dqpn=0xFFFFFF), Steer(49_152)),
]
SWITCHED = [
    (roce.data(ip_version=version, dqpn=2), Steer(60_003 + version, 60_013 + version)) for version in (4, 6)
]
"""Those whose path has been given up: they leave by their backup, and NAKs of the agent's are given to them."""


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    made = tmp_path_factory.mktemp("fuzz") / "fuzz"
    sources = [str(path) for path in SOURCES.glob("*.c")]
    subprocess.run(
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *sources, "-lbpf", "-o", str(made)],
        check=True,
    )
    return made


def corpus() -> list[Packet]:
    """Frames to start from: probes, RoCEv2 of every opcode, and what is neither."""
    probes = [signed(request(version, vlans), T1) for version in (4, 6) for vlans in (0, 1, 2)]
    data = [
        roce.data(name, 40, ip_version=version, vlans=n % 3, checksum=bool(n & 1))
        for version in (4, 6)
        for n, name in enumerate(roce.OPCODES)
    ]
    full = [roce.data(payload=payload, ip_version=version) for payload in (0, 1024) for version in (4, 6)]
    foreign = [
        link() / ARP() / Raw(bytes(30)),
        link() / network() / TCP(dport=4791) / Raw(bytes(40)),
        link() / network() / transport(dport=53) / Raw(bytes(40)),
    ]
    peers = [ip_address(text) for text in (ADDRESSES[4][1], ADDRESSES[6][1])]
    said = [link() / Raw(nak(peer, peer, 2, 9)) for peer in peers]
    said += [link() / Raw(acknowledgement(peer, peer, 2, 0x1F000001, 9)) for peer in peers]
    for frame, kind in zip(said, 2 * (0x0800, 0x86DD), strict=True):
        frame.type = kind
    special = [*said, roce.acknowledge(), roce.acknowledge(0x60), roce.congestion_notification()]
    replies = [reflected(probe, T1, T1) for probe in probes]
    return [rebuilt(packet) for packet in (*probes, *replies, *data, *full, *foreign, *special)]


def steering_line(packet: Packet, steer: Steer, *, switched: bool = False) -> str:
    key = qp_key(packet)
    address = address_words(key.dst).astype(">u4").tobytes().hex()
    sport = steer.backup_sport if switched else steer.sport
    return f"steered {address} {key.qpn} {sport} {int(steer.flow_label)} {int(switched)}"


def switch(dataplane: Machine) -> None:
    """Have the paths of some given up for good."""
    for packet, steer in SWITCHED:
        dataplane.steer(packet, steer)
    paths, control = dataplane.maps.paths, dataplane.maps.control
    paths["state"][np.isin(paths["sport"], [steer.sport for _, steer in SWITCHED])] = PathState.DOWN
    control["dead_after_ns"] = NEVER_NS


def how_many() -> tuple[int, int]:
    """The seed, and how many frames."""
    asked = os.environ.get(FRAMES_VARIABLE)
    seed, frames = (secrets.randbits(63), int(asked)) if asked else (1, 1_000_000)
    log.info("seed %d, %d frames", seed, frames)
    return seed, frames


def fuzz(command: Sequence[str | Path], given: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Run the program; returns what it showed, and its totals by name."""
    run = subprocess.run(command, input="\n".join(given), capture_output=True, text=True, check=False)
    *shown, last = run.stdout.splitlines()
    assert run.returncode == 0, f"{last}{run.stderr}"
    log.info(last)
    return shown, dict(zip(last.split()[::2], map(int, last.split()[1::2]), strict=True))


def given_frames(frames: Sequence[Packet | bytes]) -> list[str]:
    steered = [steering_line(*each) for each in STEERED]
    return [*steered, *(f"frame {bytes(frame).hex()}" for frame in frames)]


def test_mutated_frames(dataplane: Machine, fuzzer: Path) -> None:
    seed, frames = how_many()
    for packet, steer in STEERED:
        dataplane.steer(packet, steer)
    switch(dataplane)
    given = [*(steering_line(*each, switched=True) for each in SWITCHED), *given_frames(corpus())]
    agent = tree.BPFFS / f"cwdp-fuzz-{os.getpid()}"
    pins = [dataplane.pin("xdp_ingress"), dataplane.pin("tc_egress"), agent]
    libbpf.pin(dataplane.from_agent, agent)
    try:
        shown, totals = fuzz([fuzzer, "programs", *pins, str(seed), str(frames)], given)
    finally:
        agent.unlink()
    assert totals["frames"] == frames
    assert len(shown) > 0
    assert min(totals["steered"], totals["reflected"]) > frames // 200
    assert min(totals["given"], totals["acks"]) > frames // 20_000
    for line in shown:
        assert has_right_icrc(bytes.fromhex(line.removeprefix("steered "))), line


def test_mutated_frames_at_tc_ingress(dataplane: Machine, fuzzer: Path) -> None:
    """On their way through XDP and both NICs of a host: each whose detour ends here is given to the NIC that it is for."""
    seed, frames = how_many()
    nics = TwoNics(dataplane)
    try:
        partner = nics.receive_as_partner(4, 6)
        detours = [detoured(bytes(packet), far_address(packet)) for packet in corpus() if is_data(packet)]
        line = (
            f"partner {partner.mac.replace(':', '')} {partner.ipv4.packed.hex()} {partner.ipv6.packed.hex()}"
        )
        given = [line, *given_frames([*detours, *corpus()])]
        with dataplane.namespace.entered():
            set_mtu(MTU)
            _, totals = fuzz([fuzzer, "wire", "far1", "roce0", str(seed), str(frames)], given)
    finally:
        nics.close()
    assert totals["restored"] > frames // 10


def is_data(packet: Packet) -> bool:
    return BTH in packet and packet[BTH].opcode != abi.BTH_OPCODE


def far_address(packet: Packet) -> str:
    """The other address of the host that a packet is for, or of this one."""
    return OTHER_SOURCES[4 if IP in packet else 6][0]


def set_mtu(mtu: int) -> None:
    """Of every interface here."""
    with IPRoute() as ip:
        for link_index in [
            index for name in ("roce0", "far0", "roce1", "far1") for index in ip.link_lookup(ifname=name)
        ]:
            ip.link("set", index=link_index, mtu=mtu)


def has_right_icrc(frame: bytes) -> bool:
    """Whether scapy gives the frame the ICRC that it has."""
    packet = Ether(frame)
    if Padding in packet:
        packet[Padding].underlayer.remove_payload()
    anew = packet.copy()
    anew[BTH].icrc = None
    return bool(Ether(bytes(anew))[BTH].icrc == packet[BTH].icrc)
