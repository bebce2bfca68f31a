"""Which interfaces the dataplane takes, in which mode, what it switches off there, and why it refuses others."""

import re
import subprocess
from collections.abc import Iterator
from typing import Literal

import pytest
from machine import Namespace, add_link, add_veth
from pyroute2 import NetlinkError

from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.kernel import interface
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import attached, loader
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import tree
from cwdp.errors import DataplaneError, InterfaceError, KernelError

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]

ALLOWED = Settings(generic="allow")


def run(*arguments: str) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def features(ifname: str) -> dict[str, str]:
    """What `ethtool -k` says of tags: on or off."""
    return dict(re.findall(r"^(rx-vlan-\S+): (on|off)", run("ethtool", "-k", ifname), re.MULTILINE))


def add(ifname: str, kind: str, **settings: object) -> None:
    """Make an interface, if this kernel can."""
    try:
        add_link(ifname, kind, **settings)
    except NetlinkError as error:
        pytest.skip(f"this kernel has no {kind}: {error}")


def few_channels(ifname: str) -> None:
    """A veth whose driver takes no XDP program: the other end sends on more channels than it receives on."""
    peer = f"{ifname}-far"
    for name, queues in ((ifname, "1"), (peer, "4")):
        if name == ifname:
            link = ["ip", "link", "add", ifname, "numrxqueues", "4", "numtxqueues", "4", "type", "veth"]
            run(*link, "peer", "name", peer, "numrxqueues", "4", "numtxqueues", "4")
        run("ethtool", "-L", name, "rx", queues, "tx", queues)
        run("ip", "link", "set", name, "up")


def assert_refused(ifname: str, settings: Settings | None = None) -> DataplaneError:
    """The refusal, which has left nothing behind and has a next step."""
    with pytest.raises(DataplaneError) as caught:
        loader.load(ifname, settings)
    assert tree.trees_here() == []
    assert "prog/xdp" not in run("ip", "-d", "link", "show", ifname)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("kind", ["bridge", "ifb"])
def test_generic_xdp_is_refused_unless_it_is_allowed(kind: str) -> None:
    add("odd0", kind)
    refused = assert_refused("odd0")
    assert isinstance(refused, KernelError)
    assert refused.message.startswith("odd0 takes no native XDP program: ")
    assert "native mode" in refused.message
    assert 'generic = "allow"' in refused.hint
    loaded = loader.load("odd0", ALLOWED)
    assert loaded.mode is XdpMode.GENERIC
    assert "native mode" in loaded.why_generic
    assert attached.faults(loaded.where) == []


def test_a_dataplane_in_generic_xdp_is_not_taken_up_where_that_is_refused() -> None:
    add("odd0", "ifb")
    loader.load("odd0", ALLOWED)
    with pytest.raises(DataplaneError, match="odd0 has a dataplane in generic XDP") as caught:
        loader.load("odd0", Settings())
    assert "cwdp dataplane unload odd0" in caught.value.hint
    assert not loader.load("odd0", ALLOWED).changed
    assert not loader.load("odd0").changed


def test_generic_xdp_that_was_taken_away_comes_back_as_such() -> None:
    add("odd0", "ifb")
    where = loader.load("odd0", ALLOWED).where
    run("bpftool", "link", "detach", "pinned", str(where.path / tree.XDP_LINK))
    assert loader.load("odd0", ALLOWED).repaired == ("xdp_ingress is not attached",)
    assert loader.inspect(where).mode is XdpMode.GENERIC


@pytest.mark.parametrize("settings", [None, ALLOWED])
def test_the_loopback_may_be_generic(settings: Settings | None) -> None:
    run("ip", "link", "set", "lo", "up")
    assert loader.load("lo", settings).mode is XdpMode.GENERIC


def test_a_veth_may_be_generic_and_says_why() -> None:
    few_channels("few0")
    loaded = loader.load("few0")
    assert loaded.mode is XdpMode.GENERIC
    assert "queues" in loaded.why_generic


def test_the_drivers_words_and_the_step_that_they_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the veth were a NIC with too many channels."""
    few_channels("few0")
    monkeypatch.setattr(interface, "may_be_generic", lambda _ifindex: False)
    refused = assert_refused("few0")
    assert "queues" in refused.message
    assert "ethtool -L few0" in refused.hint


@pytest.mark.parametrize(
    ("why", "step"),
    [
        ("MTU too large w/o frags", "ip link set eth7 mtu"),
        ("Too few free TX rings available", "ethtool -L eth7"),
        ("Underlying driver does not support XDP in native mode", "ethtool -i eth7"),
    ],
)
def test_what_other_drivers_say(why: str, step: str) -> None:
    add_veth("eth7", "far7")
    refused = interface.no_native_xdp(ifindex_of("eth7"), "eth7", why)
    assert why in refused.message
    assert step in refused.hint
    assert 'generic = "allow"' in refused.hint


@pytest.mark.parametrize("feature", ["rx-lro", "rx-gro-hw"])
def test_merged_packets_are_named(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    monkeypatch.setattr(interface, "is_on", lambda _ifname, asked: asked == feature)
    refused = interface.no_native_xdp(ifindex_of("roce0"), "roce0", "Operation not supported")
    assert f"ethtool -K roce0 {feature} off" in refused.hint


def test_tags_are_left_on_while_it_is_loaded() -> None:
    """What the operator had comes back, and only that."""
    assert features("roce0")["rx-vlan-offload"] == features("roce0")["rx-vlan-stag-hw-parse"] == "on"
    run("ethtool", "-K", "roce0", "rx-vlan-stag-hw-parse", "off")
    loader.load("roce0")
    assert features("roce0")["rx-vlan-offload"] == "off"
    assert features("roce0")["rx-vlan-stag-hw-parse"] == "off"
    loader.unload("roce0")
    assert features("roce0")["rx-vlan-offload"] == "on"
    assert features("roce0")["rx-vlan-stag-hw-parse"] == "off"


def test_tags_that_somebody_has_taken_off_again() -> None:
    loader.load("roce0")
    run("ethtool", "-K", "roce0", "rxvlan", "on")
    assert loader.load("roce0").repaired == ("VLAN tags were taken off by the NIC",)
    assert features("roce0")["rx-vlan-offload"] == "off"
    assert not loader.load("roce0").changed
    loader.unload("roce0")
    assert features("roce0")["rx-vlan-offload"] == "on"


def test_an_upgrade_remembers_what_was_switched_off(
    other_build: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader.load("roce0")
    monkeypatch.setattr(loader, "OBJECT", other_build)
    loader.upgrade("roce0")
    assert features("roce0")["rx-vlan-offload"] == "off"
    loader.unload("roce0")
    assert features("roce0")["rx-vlan-offload"] == "on"


def test_a_load_that_fails_switches_nothing_off() -> None:
    obj = str(loader.OBJECT.with_name("lab_port.bpf.o"))
    run("ip", "link", "set", "roce0", "xdp", "obj", obj, "sec", "xdp.frags")
    with pytest.raises(DataplaneError):
        loader.load("roce0")
    assert features("roce0")["rx-vlan-offload"] == "on"


def test_tags_that_the_driver_takes_off_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were fixed: what is switched off stays on."""
    monkeypatch.setattr(interface, "_set", lambda *_arguments, **_on: None)
    refused = assert_refused("roce0")
    assert isinstance(refused, InterfaceError)
    assert "roce0 takes VLAN tags off packets" in refused.message
    assert "rx-vlan-hw-parse" in refused.hint


@pytest.mark.parametrize("kind", ["bridge", "bond", "team"])
def test_a_port_is_refused_for_the_whole(kind: str) -> None:
    add("whole0", kind)
    run("ip", "link", "set", "roce0", "down")
    run("ip", "link", "set", "roce0", "master", "whole0")
    for settings in (None, ALLOWED):
        refused = assert_refused("roce0", settings)
        assert isinstance(refused, InterfaceError)
        assert refused.message.startswith(f"roce0 is a port of the {kind} whole0")
        assert "whole0" in refused.hint


def test_a_port_of_a_vrf_is_taken() -> None:
    add("vrf0", "vrf", vrf_table=100)
    run("ip", "link", "set", "roce0", "master", "vrf0")
    assert loader.load("roce0").mode is XdpMode.NATIVE


Layer = Literal["vlan", "macvlan", "ipvlan"]


@pytest.fixture(params=["vlan", "macvlan", "ipvlan"])
def layer(request: pytest.FixtureRequest, namespace: Namespace) -> Iterator[Layer]:
    """`top0`, of such a kind, on top of roce0."""
    kind: Layer = request.param
    settings = {"vlan_id": 5} if kind == "vlan" else {}
    add("top0", kind, link=ifindex_of("roce0"), **settings)
    return kind


def test_what_is_on_top_of_a_nic_is_refused_for_the_nic(layer: Layer) -> None:
    refused = assert_refused("top0")
    assert "top0 takes no native XDP program" in refused.message
    assert f"give the fabric's address to roce0, which this {layer} is on top of" in refused.hint
    loaded = loader.load("top0", ALLOWED)
    assert loaded.mode is XdpMode.GENERIC


def test_a_bond_takes_it_in_its_ports_driver() -> None:
    add("bond0", "bond", bond_mode=1)
    run("ip", "link", "set", "bond0", "down")
    for name in ("roce0",):
        run("ip", "link", "set", name, "down")
        run("ip", "link", "set", name, "master", "bond0")
    run("ip", "link", "set", "bond0", "up")
    loaded = loader.load("bond0")
    assert loaded.mode is XdpMode.NATIVE
    assert attached.faults(loaded.where) == []
    assert loader.unload("bond0")


def test_what_carries_no_ethernet_is_refused() -> None:
    add("tunnel0", "ipip", ipip_remote="10.0.0.9", ipip_local="10.0.0.8")
    assert "carries no Ethernet frames" in assert_refused("tunnel0", ALLOWED).message
