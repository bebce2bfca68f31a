"""Probes over each kind of interface that is taken: stamped as they leave, reflected as they come in."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from machine import Namespace
from probes import KEY, KEY_ID, Probe, request, signed
from pyroute2 import IPRoute, NetlinkError
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet
from waiting import WAIT_S, until

from cwdp.agent.probing.sender import cookie_of
from cwdp.dataplane import abi
from cwdp.dataplane.abi import ProbeKind, Sender, XdpMode
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned.maps import Maps

pytestmark = pytest.mark.kernel

ETH_P_ALL, SOL_PACKET, PACKET_IGNORE_OUTGOING = 0x0003, 263, 23
VLAN = 42


@dataclass(frozen=True)
class Kind:
    """What is made on roce0, whose other end is far0.

    Attributes:
        kind: as netlink names it; None is roce0 itself.
        settings: of the kind.
        is_port: whether roce0 is a port of it; else it is on top of roce0.
        mode: where XDP is to be.
    """

    kind: str | None
    settings: dict[str, Any]
    is_port: bool
    mode: XdpMode

    def __str__(self) -> str:
        return self.kind or "veth"


KINDS = [
    Kind(None, {}, is_port=False, mode=XdpMode.NATIVE),
    Kind("bond", {"bond_mode": 1}, is_port=True, mode=XdpMode.NATIVE),
    Kind("bond", {"bond_mode": 2}, is_port=True, mode=XdpMode.NATIVE),
    Kind("vlan", {"vlan_id": VLAN}, is_port=False, mode=XdpMode.GENERIC),
    Kind("macvlan", {"macvlan_mode": "bridge"}, is_port=False, mode=XdpMode.GENERIC),
    Kind("bridge", {}, is_port=True, mode=XdpMode.GENERIC),
]


@dataclass(frozen=True)
class Ends:
    """The interface that is loaded and the far end of the wire, each with a packet socket."""

    maps: Maps
    near: socket.socket
    far: socket.socket
    mac: str
    has_tag: bool

    def frame(self, packet: Packet) -> Packet:
        """A packet as it is to come in: for the interface, with its tag."""
        found = packet.copy()
        found[Ether].dst = self.mac
        if self.has_tag:
            head = Ether(src=found[Ether].src, dst=self.mac)
            found = head / Dot1Q(vlan=VLAN) / found[Ether].payload
        return found

    def next_probe(self) -> Packet:
        """The next probe that comes out at the far end; a packet socket shows it without its tag."""
        while True:
            frame = Ether(self.far.recv(2048))
            if Probe in frame:
                return frame


def run(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True)


def make(kind: Kind) -> str:
    """Make the interface; its name."""
    if kind.kind is None:
        return "roce0"
    with IPRoute() as ip:
        lower = ip.link_lookup(ifname="roce0")[0]
        below = {} if kind.is_port else {"link": lower}
        try:
            ip.link("add", ifname="top0", kind=kind.kind, **below, **kind.settings)
        except NetlinkError as error:
            pytest.skip(f"this kernel has no {kind.kind}: {error}")
        top = ip.link_lookup(ifname="top0")[0]
        if kind.is_port:
            ip.link("set", index=lower, state="down")
            ip.link("set", index=lower, master=top)
        for index in (lower, top):
            ip.link("set", index=index, state="up")
    return "top0"


def packet_socket(ifname: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.bind((ifname, ETH_P_ALL))
    made.settimeout(WAIT_S)
    return made


@pytest.fixture(params=KINDS, ids=str)
def ends(request: pytest.FixtureRequest, namespace: Namespace) -> Iterator[Ends]:
    del namespace
    kind: Kind = request.param
    ifname = make(kind)
    obj = str(loader.OBJECT.with_name("lab_port.bpf.o"))
    run("ip", "link", "set", "far0", "xdpdrv", "obj", obj, "sec", "xdp.frags")  # or XDP_TX goes nowhere
    loaded = loader.load(ifname, Settings(generic="allow"))
    assert loaded.mode is kind.mode
    with IPRoute() as ip, Maps(loaded.where) as maps:
        maps.set_key(KEY_ID, KEY)
        (link,) = ip.get_links(ifindex_of(ifname))
        near, far = packet_socket(ifname), packet_socket("far0")
        far.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, abi.MARK)
        maps.sign_for(Sender.PAIRS_IPV4, cookie_of(near))
        yield Ends(maps, near, far, link.get_attr("IFLA_ADDRESS"), has_tag=kind.kind == "vlan")
        near.close()
        far.close()
    assert loader.unload(ifname)


@pytest.mark.parametrize("ip_version", [4, 6])
def test_a_request_is_reflected(ends: Ends, ip_version: int) -> None:
    sent = signed(request(ip_version, seq=7), 1_000)
    ends.far.send(bytes(ends.frame(sent)))
    reply = ends.next_probe()
    assert ends.maps.counters()["request_reflected"] == 1
    assert (reply[Probe].kind, reply[Probe].seq) == (ProbeKind.REPLY, 7)
    assert reply[Ether].src == ends.mac


@pytest.mark.parametrize("ip_version", [4, 6])
def test_a_probe_is_stamped(ends: Ends, ip_version: int) -> None:
    ends.near.send(bytes(request(ip_version, seq=9)))
    until(lambda: ends.maps.counters()["probe_sent"])
    assert ends.next_probe()[Probe].t1 != 0
    slot = ends.maps.slots[9]
    assert int(slot["tag"]) >> 32 == 9
    assert int(slot["t1"]) != 0
