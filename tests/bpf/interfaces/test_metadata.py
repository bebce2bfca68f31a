"""Whether a driver has room for metadata before a packet is known from its first probe; without, no detour is taken in."""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator

import pytest
from kernels import TAP_HAS_METADATA
from machine import Machine, Namespace, machine
from probes import request
from waiting import until

from cwdp.agent.config import AgentConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.nic import HostNic
from cwdp.dataplane import abi
from cwdp.dataplane.loading import loader
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.loading.status import describe
from cwdp.dataplane.pinned import meta, tree
from cwdp.shared.identity.probe_keys import Key, KeyFile

pytestmark = pytest.mark.kernel

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
KEYS = KeyFile(send=1, key=[Key(id=1, secret="ab" * 16)])


def noted(where: tree.TreePath) -> int:
    return int(meta.read(where.path)["metadata"][0])


@pytest.fixture
def fresh() -> Iterator[Machine]:
    with machine() as made:
        yield made


def test_it_is_known_with_the_first_probe(fresh: Machine) -> None:
    with fresh.namespace.entered():
        where = tree.here("roce0")
        assert (noted(where), describe(where)["takes_detours"]) == (0, None)
        fresh.ingress(bytes(64))
        assert noted(where) == 0
        fresh.ingress(fresh.egress(request(seq=3)).packet)
        assert (noted(where), describe(where)["takes_detours"]) == (abi.METADATA_HAS, True)


@pytest.fixture
def tap(namespace: Namespace) -> Iterator[int]:
    """`tap0`, whose other end is this file descriptor."""
    del namespace
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)  # else what is written takes the generic path
    except OSError as error:
        pytest.skip(f"this kernel has no tap: {error}")
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("=16sH22x", b"tap0", IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", "tap0", "up"], check=True)
    yield fd
    os.close(fd)


def test_a_driver_without_is_told(tap: int) -> None:
    """A tap is one, on older kernels; a real packet shows it."""
    nic = HostNic(AgentConfig(host="h", nics=["tap0"]), "tap0", Settings(), LinkTable(lambda _ifname: None))
    assert nic.ensure(KEYS)
    assert nic.describe().mode == "native"
    assert nic.describe().takes_detours
    os.write(tap, bytes(request(seq=3)))
    where = tree.here("tap0")
    until(lambda: noted(where))
    assert noted(where) == (abi.METADATA_HAS if TAP_HAS_METADATA else abi.METADATA_LACKS)
    assert nic.describe().takes_detours == TAP_HAS_METADATA
    nic.close()


def test_a_nic_without_says_so(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    del namespace
    nic = HostNic(AgentConfig(host="h", nics=["roce0"]), "roce0", Settings(), LinkTable(lambda _ifname: None))
    nic.ensure(KEYS)
    where = loader.load("roce0").where
    record = meta.read(where.path)
    record["metadata"] = abi.METADATA_LACKS
    meta.write(where.path, record)
    assert not nic.describe().takes_detours
    assert not nic.describe().takes_detours
    assert describe(where)["takes_detours"] is False
    assert caplog.text.count("no detours over this NIC") == 1
    nic.close()
