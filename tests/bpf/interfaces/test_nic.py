"""A NIC of the agent, as others change its interface while the agent runs."""

import subprocess
from collections.abc import Iterator

import pytest
from kernels import HAS_TCX, NO_TCX
from machine import Namespace, add_veth, delete_link

from cwdp.agent.config import AgentConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.nic import HostNic
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import attached, hooks, loader
from cwdp.dataplane.loading.hooks import Hook
from cwdp.dataplane.pinned import tree
from cwdp.shared.identity.probe_keys import Key, KeyFile

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]

KEYS = KeyFile(send=1, key=[Key(id=1, secret="ab" * 16)])


def make(ifname: str = "roce0") -> HostNic:
    return HostNic(
        AgentConfig(host="h", nics=[ifname]), ifname, loader.Settings(), LinkTable(lambda _ifname: None)
    )


@pytest.fixture
def nic(namespace: Namespace) -> Iterator[HostNic]:
    made = make()
    assert made.ensure(KEYS)
    yield made
    made.close()


def rename(old: str, new: str) -> None:
    subprocess.run(["ip", "link", "set", old, "down"], check=True)
    subprocess.run(["ip", "link", "set", old, "name", new], check=True)


@pytest.mark.parametrize("hook", [hooks.XDP, hooks.EGRESS], ids=lambda hook: hook.program)
def test_a_hook_that_was_taken_away_is_put_right_once(nic: HostNic, hook: Hook) -> None:
    maps = nic.maps
    assert nic.ensure(KEYS) is None
    where = tree.here("roce0")
    if hook.parent and not HAS_TCX:
        pytest.skip(NO_TCX)
    with libbpf.opened(where.path / hook.link) as link:
        libbpf.link_detach(link)
    found = nic.ensure(KEYS)
    assert found is not None
    assert found.repaired == (f"{hook.program} is not attached",)
    assert nic.ensure(KEYS) is None
    assert attached.faults(where) == []
    assert nic.maps is maps


def test_a_tree_that_was_unloaded_is_loaded_anew(nic: HostNic) -> None:
    maps = nic.maps
    loader.unload("roce0")
    found = nic.ensure(KEYS)
    assert found is not None
    assert found.repaired == ()
    assert nic.maps is not maps
    assert nic.ensure(KEYS) is None


def test_an_interface_that_goes_and_comes_back(nic: HostNic) -> None:
    delete_link("roce0")
    assert nic.ensure(KEYS) is None
    assert nic.maps is None
    assert nic.describe().mode == "absent"
    add_veth("roce0", "far0")
    assert nic.ensure(KEYS)
    assert nic.describe().mode == "native"


def test_a_renamed_interface_is_the_other_names(nic: HostNic) -> None:
    other = make("roce9")
    assert other.ensure(KEYS) is None
    assert nic.maps is not None
    nic.maps.set_key(2, bytes(16))
    rename("roce0", "roce9")
    assert nic.ensure(KEYS) is None
    assert nic.maps is None
    found = other.ensure(KEYS)
    assert found is not None
    assert found.where == tree.here("roce9")
    assert found.repaired == ()
    other.close()


def test_two_interfaces_that_swap_names(nic: HostNic) -> None:
    add_veth("roce1", "far1")
    other = make("roce1")
    assert other.ensure(KEYS)
    for one, number in ((nic, 1), (other, 2)):
        assert one.maps is not None
        one.maps.control["hash_seed"] = number
    rename("roce0", "spare")
    rename("roce1", "roce0")
    rename("spare", "roce1")
    assert nic.ensure(KEYS)
    assert other.ensure(KEYS)
    for one, number in ((nic, 2), (other, 1)):
        assert one.maps is not None
        assert one.maps.control["hash_seed"][0] == number
        assert one.ensure(KEYS) is None
    other.close()
