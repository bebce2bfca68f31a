"""The program that gives packets on to the other NIC: attached when it is wanted, kept by upgrades, gone with us."""

import subprocess
from pathlib import Path

import pytest
from machine import add_veth, running

from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import hooks, loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]


def take_in(ifname: str = "roce0") -> None:
    with tree.locked():
        loader.take_in(tree.here(ifname))


def filters(direction: str) -> str:
    shown = subprocess.run(
        ["tc", "filter", "show", "dev", "roce0", direction], check=True, capture_output=True, text=True
    )
    return shown.stdout


def test_only_when_it_is_wanted(held_by: str) -> None:
    where = loader.load("roce0").where
    assert running(where, hooks.INGRESS) is None
    take_in()
    before = running(where, hooks.INGRESS)
    assert before is not None
    take_in()
    assert running(where, hooks.INGRESS) == before
    if held_by == "clsact":
        assert filters("ingress").count("cwdp:tc_ingress") == 1
    loader.unload("roce0")
    assert not where.path.exists()
    assert "cwdp" not in filters("ingress") + filters("egress")


def test_an_upgrade_keeps_it(held_by: str, other_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = loader.load("roce0").where
    with tree.locked(), Maps(where) as maps:
        maps.control["partner"]["ifindex"] = ifindex_of("far0")
    take_in()
    monkeypatch.setattr(loader, "OBJECT", other_build)
    assert loader.upgrade("roce0").changed
    with libbpf.opened(where.path / "tc_ingress") as program:
        assert running(where, hooks.INGRESS) == libbpf.program_id(program)


def test_another_interface_does_not_get_it() -> None:
    where = loader.load("roce0").where
    take_in("roce0")
    add_veth("roce1", "far1")
    other = loader.load("roce1").where
    assert running(where, hooks.INGRESS) is not None
    assert running(other, hooks.INGRESS) is None


def test_the_other_nics_paths_are_followed_anew(other_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade they still are; after the other NIC's dataplane is a new one, they are again."""
    where = loader.load("roce0").where
    add_veth("roce1", "far1")
    for _ in range(2):
        other = loader.load("roce1").where
        with Maps(where) as maps, Maps(other) as others:
            maps.follow_paths_of(others)
            maps.follow_paths_of(others)
            with (
                libbpf.opened(where.path / "other_paths") as outer,
                libbpf.opened(other.path / "paths") as inner,
            ):
                assert libbpf.inner_map_id(outer) == libbpf.map_id(inner)
        loader.unload("roce1")
    monkeypatch.setattr(loader, "OBJECT", other_build)
    loader.upgrade("roce0")
    with libbpf.opened(where.path / "other_paths") as outer:
        assert libbpf.inner_map_id(outer)
