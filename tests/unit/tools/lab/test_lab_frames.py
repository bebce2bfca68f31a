"""The load generator's frames, taken apart by scapy."""

from ipaddress import ip_address

import numpy as np
import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tools.lab.traffic.frames import Address, header_pool

FRAME_BYTES = 9014


def pool(source: str, targets: list[str], flows: int = 64) -> np.ndarray:
    return header_pool(
        Address("02:01:00:01:00:00", ip_address(source)),
        [Address("02:02:00:01:00:01", ip_address(target)) for target in targets],
        FRAME_BYTES,
        flows,
        np.random.default_rng(1),
    )


@pytest.mark.parametrize(
    ("source", "target", "layer"), [("10.1.0.1", "10.2.0.3", IP), ("fd0c:0:1::1", "fd0c:0:2::3", IPv6)]
)
def test_headers_are_rocev2(source: str, target: str, layer: type) -> None:
    header = pool(source, [target])[0].tobytes()
    frame = Ether(header + bytes(FRAME_BYTES - len(header)))
    assert (frame[layer].src, frame[layer].dst) == (source, target)
    assert frame[UDP].dport == 4791
    assert frame[UDP].chksum == 0
    assert len(frame) == FRAME_BYTES
    assert frame[UDP].len == len(frame[UDP])
    assert frame[BTH].opcode == 0x07


def test_the_ipv4_checksum_is_right() -> None:
    header = pool("10.1.0.1", ["10.2.0.3"])[0].tobytes()
    frame = Ether(header)
    claimed = frame[IP].chksum
    del frame[IP].chksum
    assert Ether(frame.build())[IP].chksum == claimed


def test_flows_spread_over_targets_and_ports() -> None:
    frames = [Ether(header.tobytes()) for header in pool("10.1.0.1", ["10.2.0.1", "10.2.0.2"], flows=400)]
    assert {frame[IP].dst for frame in frames} == {"10.2.0.1", "10.2.0.2"}
    assert len({frame[UDP].sport for frame in frames}) > 380
    assert min(frame[UDP].sport for frame in frames) >= 49152
