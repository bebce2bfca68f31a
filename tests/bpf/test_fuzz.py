"""A million mutated frames through each program, judged one by one by the oracle in fuzz/; more by `make fuzz`."""

import logging
import os
import secrets
import subprocess
from pathlib import Path

import pytest
import roce
from machine import Machine, qp_key
from probes import link, network, rebuilt, reflected, request, signed, transport
from scapy.contrib.roce import BTH
from scapy.layers.inet import TCP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Padding, Raw

from cwdp.dataplane import libbpf, tree
from cwdp.dataplane.steering import Steer, address_words

pytestmark = pytest.mark.kernel
log = logging.getLogger(__name__)

SOURCES = Path(__file__).with_name("fuzz")
FRAMES_VARIABLE = "CWDP_FUZZ_FRAMES"
"""In the environment: how many frames, beginning with a seed of chance, instead of the same million each time."""

T1 = 1_000_000_007
STEERED = [
    (roce.data(), Steer(60_001)),
    (roce.data(dqpn=1), Steer(65_535)),
    (roce.data(ip_version=6), Steer(60_002, flow_label=True)),
    (roce.data(ip_version=6, dqpn=0xFFFFFF), Steer(49_152)),
]


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
    special = [roce.acknowledge(), roce.acknowledge(0x60), roce.congestion_notification()]
    replies = [reflected(probe, T1, T1) for probe in probes]
    return [rebuilt(packet) for packet in (*probes, *replies, *data, *full, *foreign, *special)]


def steering_line(packet: Packet, steer: Steer) -> str:
    key = qp_key(packet)
    address = address_words(key.dst).astype(">u4").tobytes().hex()
    return f"steered {address} {key.qpn} {steer.sport} {int(steer.flow_label)}"


def test_mutated_frames(dataplane: Machine, fuzzer: Path) -> None:
    asked = os.environ.get(FRAMES_VARIABLE)
    seed, frames = (secrets.randbits(63), int(asked)) if asked else (1, 1_000_000)
    log.info("seed %d, %d frames", seed, frames)
    for packet, steer in STEERED:
        dataplane.steer(packet, steer)
    given = [steering_line(*steered) for steered in STEERED] + [f"frame {bytes(p).hex()}" for p in corpus()]
    agent = tree.BPFFS / f"cwdp-fuzz-{os.getpid()}"
    pins = [dataplane.pin("xdp_ingress"), dataplane.pin("tc_egress"), agent]
    libbpf.pin(dataplane.from_agent, agent)
    try:
        run = subprocess.run(
            [fuzzer, *pins, str(seed), str(frames)],
            input="\n".join(given),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        agent.unlink()
    *shown, last = run.stdout.splitlines()
    assert run.returncode == 0, f"{last}{run.stderr}"
    log.info(last)
    totals = dict(zip(last.split()[::2], map(int, last.split()[1::2]), strict=True))
    assert totals["frames"] == frames
    assert len(shown) > 0
    assert min(totals["steered"], totals["reflected"]) > frames // 200
    for line in shown:
        assert has_right_icrc(bytes.fromhex(line.removeprefix("steered "))), line


def has_right_icrc(frame: bytes) -> bool:
    """Whether scapy gives the frame the ICRC that it has."""
    packet = Ether(frame)
    if Padding in packet:
        packet[Padding].underlayer.remove_payload()
    anew = packet.copy()
    anew[BTH].icrc = None
    return bool(Ether(bytes(anew))[BTH].icrc == packet[BTH].icrc)
