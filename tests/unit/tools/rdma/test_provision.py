"""Debian packages are installed where they are missing, by fakes of dpkg-query and apt-get."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROGRAMS = {"ibverbs-utils", "iproute2", "kmod", "perftest", "python3-pyverbs", "rdma-core"}
DPKG_QUERY = """\
shift 3  # -W -f FORMAT
status=0
for package in "$@"; do
    grep -hx ".* $package" "$FAKES/known" || { echo "no packages found matching $package" >&2; status=1; }
done
exit $status
"""
APT_GET = """\
echo "$@" >> "$FAKES/apt-get.called"
echo "said by apt-get"
exit "$APT_STATUS"
"""
FAKES = {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET, "sudo": 'exec "$@"'}


def provision(folder: Path, known: str, apt_status: int = 0) -> tuple[subprocess.CompletedProcess, list[str]]:
    """Run `provision.sh programs` where dpkg knows what is given; what it said, and the calls of apt-get."""
    (folder / "known").write_text(known)
    for name, script in FAKES.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    env = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FAKES": str(folder),
        "TMPDIR": str(folder),
        "APT_STATUS": str(apt_status),
    }
    ended = subprocess.run(
        [ROOT / "tools/rdma/provision.sh", "programs"], env=env, capture_output=True, text=True, check=False
    )
    calls = folder / "apt-get.called"
    return ended, calls.read_text().splitlines() if calls.exists() else []


def installed(call: str) -> set[str]:
    command, *words = call.split()
    assert command == "install"
    return {word for word in words if not word.startswith("-")}


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ("", PROGRAMS),
        ("installed iproute2\ninstalled kmod\n", PROGRAMS - {"iproute2", "kmod"}),
        ("installed iproute2\nconfig-files kmod\n", PROGRAMS - {"iproute2"}),
    ],
    ids=["none is known", "some are installed", "one was removed"],
)
def test_what_is_missing_is_installed(tmp_path: Path, known: str, missing: set[str]) -> None:
    ended, calls = provision(tmp_path, known)
    assert ended.returncode == 0, ended.stderr
    assert calls[0] == "update"
    assert installed(calls[1]) == missing
    assert "said by apt-get" not in ended.stdout + ended.stderr


def test_where_all_is_installed_apt_is_left_alone(tmp_path: Path) -> None:
    ended, calls = provision(tmp_path, "".join(f"installed {name}\n" for name in PROGRAMS))
    assert (ended.returncode, ended.stdout, ended.stderr, calls) == (0, "", "", [])


def test_what_apt_said_is_shown_where_it_fails(tmp_path: Path) -> None:
    ended, _ = provision(tmp_path, "", apt_status=100)
    assert ended.returncode == 1
    assert "said by apt-get" in ended.stderr
    (log,) = tmp_path.glob("cwdp-apt.*")
    assert str(log) in ended.stderr
