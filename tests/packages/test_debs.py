"""What is in the packages, without installing them."""

import subprocess
from configparser import ConfigParser
from pathlib import Path

import need
import pytest
from debian_archive import Archive

from cwdp import __version__
from cwdp.rdma.libraries import INSTALLED, NCCL, VERBS
from tools.packages.checkout import CHECKOUT


@pytest.fixture(scope="module")
def archives(debs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    found = [Archive.unpacked(deb, tmp_path_factory.mktemp("deb")) for deb in debs]
    return {archive.field("Package"): archive for archive in found}


def test_there_are_three_and_each_is_of_this_version(archives: dict[str, Archive]) -> None:
    assert archives.keys() == {"cwdp", "cwdp-agent", "cwdp-manager"}
    assert {archive.field("Version") for archive in archives.values()} == {__version__}
    for service in ("cwdp-agent", "cwdp-manager"):
        assert f"cwdp (= {__version__})" in archives[service].field("Depends")


def test_no_compiler_is_asked_for(archives: dict[str, Archive]) -> None:
    for archive in archives.values():
        asked = {name.split()[0] for name in archive.field("Depends").split(", ")}
        assert asked.isdisjoint({"clang", "clang-16", "gcc", "make", "libbpf-dev", "linux-headers-amd64"})
    assert (archives["cwdp"].environment / "cwdp/dataplane/loading/cwdp.bpf.o").exists()


def test_the_verbs_shim_is_where_programs_are_told_to_load_it_from(archives: dict[str, Archive]) -> None:
    archive = archives["cwdp"]
    folder = archive.files / str(INSTALLED).lstrip("/")
    assert {path.name for path in folder.iterdir()} == {VERBS, "libcwdp_verbs_audit.so", NCCL, "nccl"}
    assert (folder / "nccl/libibverbs.so").resolve() == (folder / VERBS).resolve()
    assert (archive.environment / "cwdp/rdma/lib" / VERBS).resolve() == (folder / VERBS).resolve()
    assert "libibverbs1" not in archive.field("Depends")
    said = subprocess.run(
        ("objdump", "-T", folder / VERBS), check=True, capture_output=True, text=True
    ).stdout
    assert "IBVERBS_1.1" in said


def test_settings_are_kept_on_upgrade(archives: dict[str, Archive]) -> None:
    assert archives["cwdp-agent"].conffiles == ["/etc/cwdp/agent.toml"]
    assert archives["cwdp-manager"].conffiles == ["/etc/cwdp/manager.toml"]
    assert archives["cwdp"].conffiles == []


def test_units_are_those_of_the_checkout_with_the_packages_program(archives: dict[str, Archive]) -> None:
    for service in ("agent", "manager"):
        unit = archives[f"cwdp-{service}"].unit(f"cwdp-{service}.service")
        original = ConfigParser(strict=False, interpolation=None)
        original.optionxform = str  # type: ignore[assignment, method-assign]
        original.read(CHECKOUT / f"tools/systemd/cwdp-{service}.service")
        expected = (
            original["Service"].pop("ExecStart", "").replace("/opt/cwdp/.venv/bin/cwdp", "/usr/bin/cwdp")
        )
        assert unit["Service"]["ExecStart"] == expected
        assert dict(original["Service"]).items() <= dict(unit["Service"]).items()
        scripts = (archives[f"cwdp-{service}"].control / "postinst").read_text()
        assert f"deb-systemd-helper enable 'cwdp-{service}.service'" in scripts
    assert (
        archives["cwdp-agent"].unit("cwdp-agent.service")["Unit"]["ConditionPathExists"]
        == "/var/lib/cwdp-agent/agent.creds"
    )
    assert "cwdp" in next((archives["cwdp-manager"].files / "usr/lib/sysusers.d").glob("*.conf")).read_text()


def test_nothing_of_the_machine_that_made_them_is_in_them(archives: dict[str, Archive]) -> None:
    for archive in archives.values():
        files = [path for path in archive.files.rglob("*") if path.is_file() and not path.is_symlink()]
        assert [path for path in files if bytes(CHECKOUT) in path.read_bytes()] == []
        links = [path.readlink() for path in archive.files.rglob("*") if path.is_symlink()]
        assert [link for link in links if str(link).startswith(("/tmp", str(CHECKOUT)))] == []


def test_the_interpreter_finds_the_programs_libraries(archives: dict[str, Archive]) -> None:
    """Unpacked anywhere: what is inside is taken before Debian's, and nothing but that and Debian's."""
    files = archives["cwdp"].files
    home = files / "usr/lib/cwdp"
    (files / "usr/bin/python3.11").symlink_to("/usr/bin/python3.11")  # Debian's, on a host
    code = "import sys, msgspec, numpy, nats, pyroute2, aiohttp, cwdp.agent.service; print(sys.path, numpy.__file__)"
    done = subprocess.run(
        (home / "bin/python3", "-c", code),
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert str(home / "lib/python3.11/site-packages/numpy") in done.stdout
    assert "/usr/lib/python3/dist-packages" in done.stdout
    assert "/usr/local" not in done.stdout


def test_lintian_has_nothing_to_say(debs: list[Path]) -> None:
    need.installed("lintian")
    done = subprocess.run(
        ("lintian", "--allow-root", "--fail-on", "error,warning", *debs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
