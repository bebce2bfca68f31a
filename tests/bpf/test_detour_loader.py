"""The program that gives packets on to the other NIC: attached when it is wanted, kept by upgrades, gone with us."""

import subprocess
from pathlib import Path

import pytest
from machine import add_veth

from cwdp.dataplane import hooks, libbpf, loader, tree
from cwdp.dataplane.maps import Maps

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]


def take_in(ifname: str = "roce0") -> None:
    with tree.locked():
        loader.take_in(tree.here(ifname))


def filters(direction: str) -> str:
    shown = subprocess.run(
        ["tc", "filter", "show", "dev", "roce0", direction], check=True, capture_output=True, text=True
    )
    return shown.stdout


def test_only_when_it_is_wanted() -> None:
    where = loader.load("roce0").where
    link = where.path / tree.TCX_INGRESS_LINK
    assert not link.exists()
    take_in()
    take_in()
    with libbpf.opened(link) as fd:
        assert libbpf.link_target(fd)[0] == loader.ifindex_of("roce0")
    loader.unload("roce0")
    assert not where.path.exists()


def test_by_clsact(without_tcx: None) -> None:
    loader.load("roce0")
    assert hooks.clsact_program(loader.ifindex_of("roce0"), hooks.INGRESS) is None
    take_in()
    take_in()
    assert filters("ingress").count("cwdp:tc_ingress") == 1
    loader.unload("roce0")
    assert "cwdp" not in filters("ingress") + filters("egress")


@pytest.mark.parametrize("clsact", [False, True], ids=["TCX", "clsact"])
def test_an_upgrade_keeps_it(
    clsact: bool, other_build: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if clsact:
        request.getfixturevalue("without_tcx")
    where = loader.load("roce0").where
    take_in()
    monkeypatch.setattr(loader, "OBJECT", other_build)
    assert loader.upgrade("roce0").changed
    if clsact:
        assert filters("ingress").count("cwdp:tc_ingress") == 1
        return
    with (
        libbpf.opened(where.path / tree.TCX_INGRESS_LINK) as link,
        libbpf.opened(where.path / "tc_ingress") as program,
    ):
        before = libbpf.link_target(link)[1]
        libbpf.link_update(link, program)
        assert libbpf.link_target(link)[1] == before


def test_an_upgrade_does_not_bring_it() -> None:
    where = loader.load("roce0").where
    take_in("roce0")
    add_veth("roce1", "far1")
    other = loader.load("roce1").where
    assert (where.path / tree.TCX_INGRESS_LINK).exists()
    assert not (other.path / tree.TCX_INGRESS_LINK).exists()


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
