"""What somebody does to hooks and names of a loaded interface: status tells it, the next load puts it right."""

import subprocess
from pathlib import Path

import pytest
from kernels import HAS_TCX
from machine import Namespace, add_veth, delete_link, running
from test_loader_crash import die_in

from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import hooks, loader
from cwdp.dataplane.loading.hooks import Hook
from cwdp.dataplane.loading.status import describe
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import ForeignProgramError

pytestmark = pytest.mark.kernel

EVERY_HOOK = [hooks.XDP, hooks.EGRESS, hooks.INGRESS]
LINKED = EVERY_HOOK if HAS_TCX else [hooks.XDP]
"""The hooks whose programs are held by links."""

SWAPS = [
    *(("tcx", ("kernel.libbpf.link_update", call)) for call in (1, 2, 3)),
    ("without_tcx", ("kernel.libbpf.link_update", 1)),
    *(("without_tcx", ("loading.hooks.attach_clsact", call)) for call in (1, 2)),
]
"""What holds the programs, and the calls that give a hook another program in an upgrade."""


def load_with_partner(ifname: str = "roce0") -> TreePath:
    """A dataplane that gives on what comes for its partner NIC, so that all hooks are used."""
    where = loader.load(ifname).where
    with tree.locked(), Maps(where) as maps:
        maps.control["partner"]["ifindex"] = ifindex_of("far0")
        loader.take_in(where)
    return where


def run(*arguments: str) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def rename(old: str, new: str) -> None:
    run("ip", "link", "set", old, "down")
    run("ip", "link", "set", old, "name", new)
    run("ip", "link", "set", new, "up")


def pinned_program(where: TreePath, hook: Hook) -> int:
    with libbpf.opened(where.path / hook.program) as fd:
        return libbpf.program_id(fd)


def detach(where: TreePath, hook: Hook) -> None:
    with libbpf.opened(where.path / hook.link) as fd:
        libbpf.link_detach(fd)


def assert_well(where: TreePath) -> None:
    found = describe(where)
    assert (found["attached"], found["faults"]) == (True, [])
    assert not loader.load(where.ifname).changed


@pytest.mark.parametrize("hook", LINKED, ids=lambda hook: hook.program)
def test_a_link_that_was_detached(namespace: Namespace, hook: Hook) -> None:
    where = load_with_partner()
    assert_well(where)
    with Maps(where) as maps:
        maps.set_key(7, bytes(16))
        detach(where, hook)
        found = describe(where)
        assert not found["attached"]
        assert found["faults"] == [f"{hook.program} is not attached"]
        repaired = loader.load("roce0")
        assert (repaired.changed, repaired.repaired) == (True, (f"{hook.program} is not attached",))
        assert running(where, hook) == pinned_program(where, hook)
        assert maps.still_pinned()
        assert maps.key_ids() == [7]
    assert_well(where)


def test_all_links_that_were_detached(namespace: Namespace) -> None:
    where = load_with_partner()
    with Maps(where) as maps:
        for hook in LINKED:
            detach(where, hook)
        assert len(loader.load("roce0").repaired) == len(LINKED)
        assert maps.still_pinned()
    assert_well(where)


@pytest.mark.parametrize("hook", [hooks.EGRESS, hooks.INGRESS], ids=lambda hook: hook.program)
def test_a_filter_that_was_deleted(namespace: Namespace, without_tcx: None, hook: Hook) -> None:
    where = load_with_partner()
    assert_well(where)
    direction = hook.program.removeprefix("tc_")
    run("tc", "filter", "del", "dev", "roce0", direction)
    assert describe(where)["faults"] == [f"{hook.program} is not attached"]
    assert loader.load("roce0").repaired == (f"{hook.program} is not attached",)
    assert run("tc", "filter", "show", "dev", "roce0", direction).count(f"cwdp:{hook.program}") == 1
    assert_well(where)


def test_clsact_that_was_deleted(namespace: Namespace, without_tcx: None) -> None:
    where = load_with_partner()
    run("tc", "qdisc", "del", "dev", "roce0", "clsact")
    assert describe(where)["egress"] == "detached"
    assert len(loader.load("roce0").repaired) == 2
    assert describe(where)["egress"] == "clsact"
    assert_well(where)


@pytest.mark.parametrize("hook", LINKED, ids=lambda hook: hook.program)
def test_another_program_behind_a_link(namespace: Namespace, other_build: Path, hook: Hook) -> None:
    where = load_with_partner()
    with libbpf.BpfObject(other_build) as obj:
        obj.load()
        with libbpf.opened(where.path / hook.link) as link:
            libbpf.link_update(link, obj.program_fd(hook.program))
    assert describe(where)["faults"] == [f"{hook.program} is not the program of this build"]
    assert loader.load("roce0").changed
    assert running(where, hook) == pinned_program(where, hook)
    assert_well(where)


def test_another_program_behind_a_filter(namespace: Namespace, without_tcx: None, other_build: Path) -> None:
    where = load_with_partner()
    with libbpf.BpfObject(other_build) as obj:
        obj.load()
        hooks.attach_clsact(obj.program_fd("tc_egress"), ifindex_of("roce0"), hooks.EGRESS)
    assert describe(where)["faults"] == ["tc_egress is not the program of this build"]
    assert loader.load("roce0").changed
    assert_well(where)


@pytest.mark.parametrize(("held_by", "swap"), SWAPS, indirect=["held_by"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_upgrade_killed_between_two_hooks(
    namespace: Namespace, other_build: Path, held_by: str, swap: tuple[str, int], moment: str
) -> None:
    """The build that was there loads again: it is whole, and not half of the other."""
    where = load_with_partner()
    die_in(namespace, "upgrade", other_build, (*swap, moment))
    loader.load("roce0")
    for hook in EVERY_HOOK:
        assert running(where, hook) == pinned_program(where, hook)
    assert_well(where)


def test_a_program_of_somebody_else_in_our_place(namespace: Namespace) -> None:
    """It is not replaced, and the maps stay for when it has gone."""
    where = loader.load("roce0").where
    detach(where, hooks.XDP)
    obj = str(loader.OBJECT.with_name("lab_port.bpf.o"))
    run("ip", "link", "set", "roce0", "xdp", "obj", obj, "sec", "xdp.frags")
    with Maps(where) as maps:
        with pytest.raises(ForeignProgramError):
            loader.load("roce0")
        run("ip", "link", "set", "roce0", "xdp", "off")
        assert loader.load("roce0").changed
        assert maps.still_pinned()
    assert_well(where)


@pytest.mark.parametrize("hook", LINKED, ids=lambda hook: hook.program)
def test_an_upgrade_puts_right_what_was_taken_away(
    namespace: Namespace, other_build: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook
) -> None:
    where = load_with_partner()
    detach(where, hook)
    monkeypatch.setattr(loader, "OBJECT", other_build)
    assert loader.upgrade("roce0").changed
    assert_well(where)


def test_a_renamed_interface_keeps_its_dataplane(namespace: Namespace, held_by: str) -> None:
    old = load_with_partner()
    with Maps(old) as maps:
        maps.set_key(5, bytes(16))
        rename("roce0", "roce9")
        assert describe(old)["faults"] == ["the interface is called roce9 now"]
        loaded = loader.load("roce9")
    assert loaded.where == tree.here("roce9")
    assert [where.ifname for where in tree.trees_here()] == ["roce9"]
    with Maps(loaded.where) as maps:
        assert maps.key_ids() == [5]
    assert_well(loaded.where)
    assert loader.unload("roce9")
    assert tree.trees_here() == []
    assert "cwdp" not in run("tc", "filter", "show", "dev", "roce9", "egress")


def test_interfaces_that_take_each_others_names(namespace: Namespace) -> None:
    """Each keeps its own maps, however the names go round."""
    names = ["roce0", "roce1", "roce2"]
    for name in names[1:]:
        add_veth(name, f"{name}-far")
    for number, name in enumerate(names):
        with Maps(loader.load(name).where) as maps:
            maps.set_key(number + 1, bytes(16))
    rename("roce0", "spare")
    rename("roce2", "roce0")
    rename("roce1", "roce2")
    rename("spare", "roce1")
    for name, key in zip(names, [3, 1, 2], strict=True):
        where = loader.load(name).where
        with Maps(where) as maps:
            assert maps.key_ids() == [key]
        assert_well(where)


def test_a_new_interface_with_the_old_name_of_another(namespace: Namespace) -> None:
    loader.load("roce0")
    rename("roce0", "roce9")
    add_veth("roce0", "far9")
    assert loader.load("roce0").changed
    assert not loader.load("roce9").changed
    assert {where.ifname for where in tree.trees_here()} == {"roce0", "roce9"}


def test_a_renamed_interface_is_unloaded_by_either_name(namespace: Namespace) -> None:
    for name in ("roce0", "roce9"):
        loader.load("roce0")
        rename("roce0", "roce9")
        assert loader.unload(name)
        assert tree.trees_here() == []
        assert "prog/xdp" not in run("ip", "-d", "link", "show", "roce9")
        rename("roce9", "roce0")


def test_unloading_from_an_interface_that_has_vanished(namespace: Namespace, held_by: str) -> None:
    loader.load("roce0")
    delete_link("roce0")
    assert loader.unload("roce0")
    assert not loader.unload("roce0")
    assert tree.trees_here() == []


def test_an_interface_that_was_moved_to_another_namespace(namespace: Namespace) -> None:
    """What it left behind says so, and gives way; nothing of ours runs over there."""
    where = loader.load("roce0").where
    other = Namespace()
    try:
        target = f"/proc/self/fd/{other.fd}"
        subprocess.run(["ip", "link", "set", "roce0", "netns", target], check=True, pass_fds=[other.fd])
        assert describe(where)["faults"] == ["the interface is gone, or in another namespace"]
        add_veth("roce0", "far9")
        assert loader.load("roce0").changed
        assert_well(where)
        with other.entered():
            assert "prog/xdp" not in run("ip", "-d", "link", "show", "roce0")
            assert loader.load("roce0").changed
    finally:
        other.close()
    assert_well(where)
