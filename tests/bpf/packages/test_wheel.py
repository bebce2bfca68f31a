"""The wheel, installed into a virtual environment of its own: a dataplane without checkout and without compiler."""

import json
import os
import site
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import need
import pytest
from machine import Namespace

from cwdp.dataplane.loading import loader
from tools.packages import wheel
from tools.packages.checkout import CHECKOUT

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need.installed(wheel.BUILT_OBJECT)
    return wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and with the libraries that the tests themselves run with."""
    made = tmp_path_factory.mktemp("elsewhere") / "environment"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", made), check=True)
    pip = (sys.executable, "-m", "pip", "--python", made, "install", "-q", "--no-index", "--no-deps", built)
    subprocess.run(pip, check=True)
    libraries = "\n".join([sysconfig.get_path("purelib"), *site.getsitepackages()])
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(made)}))
    (packages / "libraries.pth").write_text(libraries)
    return made


def run(environment: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of its programs in a folder that holds nothing, with nothing to be found on the path."""
    return subprocess.run(
        (environment / "bin" / program, *arguments),
        cwd=environment.parent,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_installed_wheel_loads_its_own_dataplane(environment: Path, namespace: Namespace) -> None:
    where = run(
        environment, "python", "-c", "from cwdp.dataplane.loading import loader; print(loader.OBJECT)"
    )
    assert Path(where.stdout.strip()).is_relative_to(environment)
    loaded = run(environment, "cwdp", "dataplane", "load", "roce0")
    assert (loaded.returncode, loaded.stderr) == (0, "")
    status = run(environment, "cwdp", "dataplane", "status", "--json")
    (nic,) = json.loads(status.stdout)["interfaces"]
    assert (nic["attached"], nic["current"], nic["mode"]) == (True, True, "native")
    assert nic["tag"] == loader.object_tag()  # the same programs as the checkout's
    assert run(environment, "cwdp", "dataplane", "unload", "roce0").returncode == 0


def test_it_holds_what_bcc_compiles(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        assert "cwdp/agent/uprobes/probes/uprobes.c" in archive.namelist()


def test_what_belongs_to_the_checkout_says_so(environment: Path) -> None:
    told = run(environment, "cwdp", "lab", "up")
    assert (told.returncode, told.stdout) == (1, "")
    assert "`cwdp lab` is part of the checkout" in told.stderr
    listed = run(environment, "cwdp", "--help")
    assert listed.returncode == 0
    assert "lab" not in listed.stdout.split()


def test_it_holds_nothing_of_the_machine_that_made_it(built: Path) -> None:
    here = [os.fsencode(path) for path in {CHECKOUT, CHECKOUT.resolve(), Path.home(), built.parent}]
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        said = [name for name in names if any(path in archive.read(name) for path in here)]
    assert said == []
    assert {name.split("/")[0] for name in names} == {
        "cwdp",
        "manager",
        f"{'-'.join(built.name.split('-')[:2])}.dist-info",
    }
    assert [name for name in names if name.endswith(".o")] == ["cwdp/dataplane/loading/cwdp.bpf.o"]
    assert "manager/page/static/index.html" in names
