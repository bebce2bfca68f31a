"""Loading, unloading and what stands in the way of it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import HAS_TCX
from machine import Namespace, add_veth, delete_link
from waiting import until

from cwdp.dataplane import abi
from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import attached, hooks, loader
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.loading.status import describe
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import (
    DataplaneError,
    ForeignProgramError,
    InterfaceError,
    KernelError,
    VersionError,
)

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]

EGRESS_FILTER = "cwdp:tc_egress"
WHOLE = {*tree.MAPS, tree.SETTINGS_MAP, *tree.PROGRAMS, tree.XDP_LINK} | (
    {tree.TCX_LINK} if HAS_TCX else set()
)


def pins(ifname: str = "roce0") -> set[str]:
    """What is pinned for an interface."""
    path = tree.here(ifname).path
    return {entry.name for entry in path.iterdir()} if path.exists() else set()


def assert_nothing_left() -> None:
    assert not tree.here("roce0").directory.exists()


def attached_xdp(ifname: str = "roce0") -> str:
    """What `ip` says of an interface."""
    return subprocess.run(
        ["ip", "-d", "link", "show", ifname], check=True, capture_output=True, text=True
    ).stdout


def test_load_and_unload() -> None:
    loaded = loader.load("roce0")
    assert (loaded.changed, loaded.mode, loaded.tag) == (True, XdpMode.NATIVE, loader.object_tag())
    assert pins() == WHOLE
    assert attached.faults(loaded.where) == []
    assert loader.unload("roce0")
    assert_nothing_left()
    assert "prog/xdp" not in attached_xdp()


def test_both_are_idempotent() -> None:
    first = loader.load("roce0")
    again = loader.load("roce0")
    assert again == first
    assert not again.changed
    assert loader.unload("roce0")
    assert not loader.unload("roce0")


def test_unload_then_load_at_once() -> None:
    """The kernel frees links later: neither is refused as if a stranger were there."""
    for _ in range(5):
        assert loader.load("roce0").changed
        assert loader.unload("roce0")


def test_outlives_its_process(namespace: Namespace) -> None:
    code = "from cwdp.dataplane.loading import loader; loader.load('roce0')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert pins() == WHOLE
    assert not loader.load("roce0").changed


def test_settings_are_kept() -> None:
    loader.load("roce0", Settings(probe_port=18515))
    with libbpf.opened(tree.here("roce0").path / tree.SETTINGS_MAP) as fd:
        assert libbpf.map_lookup(fd, 0, abi.SETTINGS.itemsize)[:2] == (18515).to_bytes(2, "little")


def test_other_settings_are_refused() -> None:
    loader.load("roce0", Settings(probe_port=5000))
    with pytest.raises(DataplaneError, match="loaded with other settings") as caught:
        loader.load("roce0", Settings())
    assert "cwdp dataplane unload roce0" in caught.value.hint
    assert not loader.load("roce0", Settings(probe_port=5000)).changed
    assert not loader.load("roce0").changed


@pytest.mark.parametrize("ifname", ["eth0.100", "..x", "a.b.c", "@+-_=,~!#$"])
def test_odd_names(ifname: str) -> None:
    add_veth(ifname, "peer0")
    where = loader.load(ifname).where
    assert [found.ifname for found in tree.trees_here()] == [ifname]
    assert describe(where)["attached"]
    assert loader.unload(ifname)
    assert tree.trees_here() == []


@pytest.mark.parametrize("ifname", ["a%b", "a%2eb", "%2e", "%new-x", "a.%2e.b"])
def test_names_are_told_apart(ifname: str) -> None:
    """The kernel takes no name with a percent sign today; the tree could."""
    assert tree._unquote(tree._quote(ifname)) == ifname
    assert not tree._quote(ifname).startswith(tree.TEMPORARY)


def test_two_interfaces_and_two_namespaces_of_equal_names() -> None:
    loader.load("roce0")
    loader.load("far0")
    other = Namespace()
    try:
        with other.entered():
            add_veth("roce0", "far0")
            assert loader.load("roce0").changed
            assert loader.unload("roce0")
    finally:
        other.close()
    assert not loader.load("roce0").changed
    assert {where.ifname for where in tree.trees_here()} == {"roce0", "far0"}


def test_a_recreated_interface() -> None:
    """The tree of an interface that is gone says so, and gives way to its successor's."""
    where = loader.load("roce0").where
    delete_link("roce0")
    assert not describe(where)["attached"]
    add_veth("roce0", "far0")
    assert loader.load("roce0").changed
    assert attached.faults(where) == []


def test_no_such_interface() -> None:
    with pytest.raises(InterfaceError, match="there is no interface nosuch") as caught:
        loader.load("nosuch")
    assert "roce0" in caught.value.hint
    assert_nothing_left()


def test_a_foreign_program_stays() -> None:
    obj = loader.OBJECT.with_name("lab_port.bpf.o")
    subprocess.run(["ip", "link", "set", "roce0", "xdp", "obj", str(obj), "sec", "xdp.frags"], check=True)
    before = attached_xdp()
    with pytest.raises(
        ForeignProgramError, match=r"another XDP program \(id \d+\) is attached to roce0"
    ) as caught:
        loader.load("roce0")
    assert "bpftool net show dev roce0" in caught.value.hint
    assert attached_xdp() == before
    assert_nothing_left()


def test_nobody_replaces_ours() -> None:
    loader.load("roce0")
    obj = loader.OBJECT.with_name("lab_port.bpf.o")
    refused = subprocess.run(
        ["ip", "link", "set", "roce0", "xdp", "obj", str(obj), "sec", "xdp.frags"],
        check=False,
        capture_output=True,
    )
    assert refused.returncode != 0
    assert attached.faults(tree.here("roce0")) == []


def test_a_tree_that_is_not_whole_is_made_anew() -> None:
    where = loader.load("roce0").where
    (where.path / tree.XDP_LINK).unlink()
    wait_until_free("roce0")
    assert loader.load("roce0").changed
    assert pins() == WHOLE


def wait_until_free(ifname: str) -> None:
    """Until the kernel has freed the link that was unpinned."""
    until(lambda: "prog/xdp" not in attached_xdp(ifname))


@pytest.mark.parametrize("call", range(1, len(WHOLE) + 1))
def test_a_pin_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    real, calls = libbpf.pin, []

    def pin(fd: int, path: Path) -> None:
        calls.append(path)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        real(fd, path)

    monkeypatch.setattr(libbpf, "pin", pin)
    with pytest.raises(DataplaneError, match="No space left on device"):
        loader.load("roce0")
    assert len(calls) == call
    assert_nothing_left()
    monkeypatch.undo()
    assert loader.load("roce0").changed


def test_an_attachment_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataplaneError("tc egress takes no program")

    monkeypatch.setattr(hooks, "attach_tc", refuse)
    with pytest.raises(DataplaneError):
        loader.load("roce0")
    assert_nothing_left()
    assert "prog/xdp" not in attached_xdp()


def test_no_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loader, "OBJECT", tmp_path / "none.o")
    with pytest.raises(DataplaneError, match="has not been built") as caught:
        loader.load("roce0")
    assert caught.value.hint == "run `make setup`"


def test_a_broken_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.o"
    broken.write_bytes(b"not an object")
    monkeypatch.setattr(loader, "OBJECT", broken)
    with pytest.raises(DataplaneError, match="is no BPF object"):
        loader.load("roce0")
    assert_nothing_left()


def test_a_kernel_without_btf(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: libbpf.BpfObject) -> None:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(libbpf.BpfObject, "load", refuse)
    monkeypatch.setattr(loader, "KERNEL_BTF", Path("/nonexistent"))
    with pytest.raises(KernelError, match="this kernel has no BTF") as caught:
        loader.load("roce0")
    assert "CONFIG_DEBUG_INFO_BTF" in caught.value.hint
    assert_nothing_left()


def test_a_kernel_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: libbpf.BpfObject) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(libbpf.BpfObject, "load", refuse)
    with pytest.raises(DataplaneError, match="the kernel refuses BPF programs"):
        loader.load("roce0")


@pytest.mark.parametrize("action", ["load", "unload", "upgrade"])
def test_without_privileges(action: str) -> None:
    code = f"""
import os
from cwdp.dataplane.loading import loader
from cwdp.errors import PrivilegeError
os.setuid(65534)
try:
    loader.{action}("roce0")
except PrivilegeError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "this needs CAP_" in out
    assert "sudo" in out
    assert_nothing_left()


@pytest.mark.usefixtures("without_tcx")
def test_clsact() -> None:
    """On kernels without TCX: others' filters stay, and clsact too while somebody uses it."""
    tc("qdisc", "add", "dev", "roce0", "clsact")
    foreign = str(loader.OBJECT.with_name("lab_link.bpf.o"))
    tc(
        "filter",
        "add",
        "dev",
        "roce0",
        "egress",
        "prio",
        "7",
        "bpf",
        "direct-action",
        "obj",
        foreign,
        "sec",
        "tc",
    )
    loader.load("roce0")
    assert pins() == WHOLE - {tree.TCX_LINK}
    assert EGRESS_FILTER in tc("filter", "show", "dev", "roce0", "egress")
    assert describe(tree.here("roce0"))["egress"] == "clsact"
    loader.unload("roce0")
    left = tc("filter", "show", "dev", "roce0", "egress")
    assert "lab_link" in left
    assert EGRESS_FILTER not in left


@pytest.mark.usefixtures("without_tcx")
def test_loading_from_a_running_event_loop() -> None:
    """As the agent does; what asks the kernel by netlink has a loop of its own."""

    async def load() -> None:
        loader.load("roce0")

    asyncio.run(load())
    loader.unload("roce0")
    obj = loader.OBJECT.with_name("lab_port.bpf.o")
    subprocess.run(["ip", "link", "set", "roce0", "xdp", "obj", str(obj), "sec", "xdp.frags"], check=True)
    with pytest.raises(ForeignProgramError, match=r"\(id \d+\)"):
        asyncio.run(load())


def test_clsact_of_our_own_goes_with_us() -> None:
    index = ifindex_of("roce0")
    where = loader.load("roce0").where
    with libbpf.opened(where.path / "tc_egress") as program:
        hooks.attach_clsact(program, index, hooks.EGRESS)
        hooks.attach_clsact(program, index, hooks.EGRESS)
    assert tc("filter", "show", "dev", "roce0", "egress").count(EGRESS_FILTER) == 1
    hooks.detach_clsact(index)
    assert "clsact" not in tc("qdisc", "show", "dev", "roce0")


def tc(*arguments: str) -> str:
    return subprocess.run(["tc", *arguments], check=True, capture_output=True, text=True).stdout


def test_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    loader.load("roce0")
    monkeypatch.setattr("cwdp.dataplane.abi.ABI", 99)
    with pytest.raises(VersionError, match=r"has layout [0-9]+, this build reads 99") as caught:
        loader.load("roce0")
    assert "cwdp dataplane unload roce0" in caught.value.hint
    assert "error" in describe(tree.here("roce0"))


def test_maps_are_shared_memory() -> None:
    where = loader.load("roce0").where
    with Maps(where) as one, Maps(where) as two:
        one.slots["t1"][17] = 5
        assert two.slots["t1"][17] == 5
        one.set_key(4, bytes(range(16)))
        assert two.key_ids() == [4]
