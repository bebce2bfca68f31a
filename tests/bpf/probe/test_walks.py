"""An audit's walks pass the dataplanes of both ends: as they are, and as no queue pair's."""

import socket

import pytest
from machine import TC_ACT_UNSPEC, XDP_PASS, Machine
from scapy.data import ETH_P_IP, ETH_P_IPV6
from scapy.layers.l2 import Ether

from cwdp.agent.tracing.packets import FlowPath
from cwdp.agent.walking.packets import build
from cwdp.dataplane.abi import Direction, Reason

pytestmark = pytest.mark.kernel

PATHS = pytest.mark.parametrize(
    "path",
    [FlowPath("roce0", "10.1.0.1", "10.2.0.1", 50_000), FlowPath("roce0", "fd00:1::1", "fd00:2::1", 50_000)],
    ids=["ipv4", "ipv6"],
)
SIZES = pytest.mark.parametrize("size_bytes", [129, 1_500, 3_000])


def frame(path: FlowPath, size_bytes: int) -> bytes:
    kind = ETH_P_IP if path.family == socket.AF_INET else ETH_P_IPV6
    return (
        bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=kind))
        + build(path, 3, 4791, size_bytes=size_bytes, tos=106).packet
    )


@PATHS
@SIZES
def test_leaving_it_is_nobodys(dataplane: Machine, path: FlowPath, size_bytes: int) -> None:
    packet = frame(path, size_bytes)
    run = dataplane.leave(packet)
    assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, packet, {})
    assert not dataplane.maps.qps[Direction.EGRESS]["tag"].any()


@PATHS
@SIZES
def test_arriving_it_is_nobodys_and_not_reflected(
    dataplane: Machine, path: FlowPath, size_bytes: int
) -> None:
    packet = frame(path, size_bytes)
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {Reason.BAD_LENGTH: 1})
    assert not dataplane.maps.qps[Direction.INGRESS]["tag"].any()
