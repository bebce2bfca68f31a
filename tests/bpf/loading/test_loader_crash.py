"""kill -9 in the middle of loading and upgrading: the next command finds a clean state and works."""

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from machine import Namespace

from cwdp.dataplane.loading import attached, hooks, loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps

pytestmark = pytest.mark.kernel

STEPS = [
    ("loading.loader._open_and_load", 1, "after"),
    ("kernel.libbpf.pin", 1, "before"),
    ("kernel.libbpf.pin", 5, "after"),
    ("loading.hooks.attach_xdp", 1, "before"),
    ("kernel.libbpf.link_create", 1, "after"),
    ("loading.hooks.attach_xdp", 1, "after"),
    ("loading.hooks.attach_tc", 1, "after"),
    ("loading.loader._take_place", 1, "before"),
    ("loading.loader._take_place", 1, "after"),
]
UPGRADE_STEPS = [
    ("loading.loader._open_and_load", 1, "after"),
    ("kernel.libbpf.pin", 3, "after"),
    ("kernel.libbpf.link_update", 1, "before"),
    ("kernel.libbpf.link_update", 1, "after"),
    ("loading.loader._take_place", 1, "before"),
    ("loading.loader._take_place", 1, "after"),
]
UPGRADES = [
    *itertools.product(("tcx", "without_tcx"), UPGRADE_STEPS),
    ("tcx", ("kernel.libbpf.link_update", 2, "after")),
    ("without_tcx", ("loading.hooks.attach_clsact", 1, "before")),
    ("without_tcx", ("loading.hooks.attach_clsact", 1, "after")),
]


def die_in(namespace: Namespace, action: str, obj: Path, step: tuple[str, int, str]) -> None:
    """Start a loader that is killed at that step."""
    script = Path(__file__).parents[1] / "dying_loader.py"
    name, call, moment = step
    arguments = [str(namespace.fd), action, str(obj), name, str(call), moment]
    died = subprocess.run([sys.executable, str(script), *arguments], check=False, pass_fds=[namespace.fd])
    assert died.returncode == -signal.SIGKILL


def temporaries() -> list[Path]:
    """What was left half made in this namespace."""
    return list(tree.here("roce0").directory.glob(f"{tree.TEMPORARY}*"))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step)))
def test_load(namespace: Namespace, step: tuple[str, int, str]) -> None:
    die_in(namespace, "load", loader.OBJECT, step)
    where = loader.load("roce0").where
    assert temporaries() == []
    assert attached.faults(where) == []
    assert loader.unload("roce0")
    assert tree.trees_here() == []


@pytest.mark.parametrize(("held_by", "step"), UPGRADES, indirect=["held_by"])
def test_upgrade(namespace: Namespace, other_build: Path, held_by: str, step: tuple[str, int, str]) -> None:
    """The interface is never without programs, and the maps are kept."""
    where = loader.load("roce0").where
    with Maps(where) as maps:
        maps.set_key(3, bytes(16))
    die_in(namespace, "upgrade", other_build, step)
    assert all(attached.is_attached(where, hook) for hook in (hooks.XDP, hooks.EGRESS))
    upgraded = loader.upgrade("roce0")
    assert temporaries() == []
    assert (upgraded.tag, attached.faults(where)) == (loader.object_tag(), [])
    with Maps(where) as maps:
        assert maps.key_ids() == [3]
    assert loader.unload("roce0")
    assert tree.trees_here() == []
