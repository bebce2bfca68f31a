"""Labs come and go without a trace: twice, after a crash, two at once, beside what is not theirs."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lab_traffic import send_many

from cwdp.dataplane.pinned.tree import BPFFS
from cwdp.errors import LabError
from tools.lab import Lab, LabSpec, clocks, lifecycle, processor, state
from tools.lab.network import netns
from tools.lab_cli import lab as lab_group

pytestmark = pytest.mark.lab

SMALL = ["--leaves", "2", "--spines", "1", "--hosts", "1"]


@pytest.fixture(autouse=True)
def nothing_left(spare_name: str) -> Iterator[None]:
    """Compare what the machine has before and after each test."""
    before = traces(spare_name)
    yield
    lifecycle.down(spare_name)
    lifecycle.down(f"{spare_name}2")
    assert traces(spare_name) == before


def traces(name: str) -> tuple[list[str], list[str], list[str], list[Path]]:
    """Return namespaces, links, state directories and control groups that belong to a lab, or to nobody."""
    namespaces = sorted(path.name for path in Path("/run/netns").glob(f"cw-{name}*"))
    links = sorted(path.name for path in Path("/sys/class/net").iterdir())
    directories = sorted(path.name for path in state.RUN_ROOT.glob(f"{name}*"))
    return namespaces, links, directories, list(processor.folders(name))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(lab_group, arguments)


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tools.lab", *arguments], capture_output=True, text=True, check=False
    )


def start_command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tools.lab", *arguments], stdout=subprocess.PIPE, text=True
    )


def works(name: str) -> bool:
    lab = Lab.open(name)
    return len(send_many(lab.hosts[0], lab.hosts[-1], 5)) == 5


def test_up_twice_is_one_lab_and_down_twice_is_none(spare_name: str) -> None:
    assert "is up: 2 hosts" in invoke("up", "--name", spare_name, *SMALL).output
    again = invoke("up", "--name", spare_name, *SMALL)
    assert (again.exit_code, "already up" in again.output) == (0, True)
    assert works(spare_name)
    assert "is gone" in invoke("down", "--name", spare_name).output
    again = invoke("down", "--name", spare_name)
    assert (again.exit_code, "nothing to do" in again.output) == (0, True)


def test_another_lab_of_the_same_name_is_refused_with_the_next_step(spare_name: str) -> None:
    invoke("up", "--name", spare_name, *SMALL)
    refused = run_command("up", "--name", spare_name, *SMALL, "--seed", "2")
    assert refused.returncode == 1
    assert "another lab with the name" in refused.stderr
    assert f"cwdp lab down --name {spare_name}" in refused.stderr
    assert works(spare_name)


def test_a_damaged_lab_is_named_as_such(spare_name: str) -> None:
    invoke("up", "--name", spare_name, *SMALL)
    netns.remove(f"cw-{spare_name}-s1")
    refused = invoke("up", "--name", spare_name, *SMALL)
    assert isinstance(refused.exception, LabError)
    assert "lacks s1" in refused.exception.message
    for command, *arguments in (["status"], ["cut", "l1-s1"]):
        failed = run_command(command, "--name", spare_name, *arguments)
        assert (failed.returncode, "Traceback" in failed.stderr) == (1, False)
        assert f"no network namespace 'cw-{spare_name}-s1'" in failed.stderr
    assert not Path("/run/netns", f"cw-{spare_name}-s1").exists()


@pytest.mark.parametrize("namespaces", [1, 6, 15])
def test_after_a_crash_in_the_middle_up_and_down_are_clean(spare_name: str, namespaces: int) -> None:
    for after in ("up", "down"):
        crash_during_up(spare_name, namespaces)
        assert run_command(after, "--name", spare_name).returncode == 0
        if after == "up":
            assert works(spare_name)
            lifecycle.down(spare_name)
        assert not list(Path("/run/netns").glob(f"cw-{spare_name}-*"))


def crash_during_up(name: str, namespaces: int) -> None:
    building = start_command("up", "--name", name)
    while len(list(Path("/run/netns").glob(f"cw-{name}-*"))) < namespaces:
        assert building.poll() is None
        time.sleep(0.001)
    building.send_signal(signal.SIGKILL)
    building.communicate()


def test_a_name_without_its_namespace_is_cleared_after_a_crash(spare_name: str) -> None:
    with state.locked(spare_name):
        state.save(state.LabState(LabSpec(name=spare_name)))
    stray = Path(f"/run/netns/cw-{spare_name}-h1")
    stray.touch()
    assert lifecycle.down(spare_name)
    assert not stray.exists()


def test_two_commands_at_once_raise_one_lab(spare_name: str) -> None:
    both = [start_command("up", "--name", spare_name, *SMALL) for _ in range(2)]
    outputs = sorted(command.communicate()[0] for command in both)
    assert [command.returncode for command in both] == [0, 0]
    assert "already up" in outputs[0]
    assert "is up: 2 hosts" in outputs[1]


def test_two_labs_do_not_touch_each_other(spare_name: str) -> None:
    other = f"{spare_name}2"
    for name in (spare_name, other):
        assert invoke("up", "--name", name, *SMALL).exit_code == 0
    assert works(spare_name)
    assert works(other)
    lifecycle.down(spare_name)
    assert works(other)


def test_a_foreign_namespace_is_refused_and_left_alone(spare_name: str) -> None:
    foreign = f"cw-{spare_name}-h1"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        refused = run_command("up", "--name", spare_name, *SMALL)
        assert refused.returncode == 1
        assert f"{foreign!r} exists and is not this lab's" in refused.stderr
        assert lifecycle.down(spare_name) is False
        assert Path("/run/netns", foreign).exists()
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_processes_of_the_lab_end_with_it(spare_name: str) -> None:
    invoke("up", "--name", spare_name, *SMALL)
    lab = Lab.open(spare_name)
    sleeper = lab.popen("h1", ["sleep", "60"])
    own = Path(f"/proc/{sleeper.pid}/ns/net").stat().st_ino
    assert own == Path("/run/netns", lab.netns("h1")).stat().st_ino
    lifecycle.down(spare_name)
    assert sleeper.wait(timeout=1) == -signal.SIGTERM


def test_pinned_trees_of_the_labs_namespaces_go_and_others_stay(
    spare_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_BPF_ROOT", tmp_path)
    invoke("up", "--name", spare_name, *SMALL)
    own = tmp_path / str(netns.cookie(f"cw-{spare_name}-h1"))
    (own / "nic0" / "maps").mkdir(parents=True)
    (tmp_path / "1").mkdir()
    lifecycle.down(spare_name)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_exec_passes_status_and_keeps_the_mounts(spare_name: str) -> None:
    invoke("up", "--name", spare_name, *SMALL)
    assert run_command("exec", "--name", spare_name, "h1", "--", "sh", "-c", "exit 7").returncode == 7
    mounts = run_command(
        "exec", "--name", spare_name, "h1", "--", "readlink", "/proc/self/ns/mnt"
    ).stdout.strip()
    assert mounts == str(Path("/proc/self/ns/mnt").readlink())
    missing = run_command("exec", "--name", spare_name, "h1", "--", "no-such-command")
    assert (missing.returncode, "cannot run 'no-such-command'" in missing.stderr) == (1, True)


def test_status_tells_the_truth_of_the_clocks(spare_name: str) -> None:
    invoke("up", "--name", spare_name, *SMALL, "--seed", "3")
    told = json.loads(invoke("status", "--name", spare_name, "--json").output)
    assert told["spec"]["clocks"] == "disciplined"
    for name, drawn in clocks.draw(LabSpec(leaves=2, spines=1, hosts_per_leaf=1, seed=3), 1):
        host = next(host for host in told["hosts"] if host["name"] == name)
        assert host["clock"]["offset_ns"] == pytest.approx(drawn.offset_ns, abs=1e6)
        assert host["clock"]["oscillator_ppb"] == pytest.approx(drawn.oscillator.rate(0) * 1e9, abs=1_000)
        assert 0 < time.clock_gettime_ns(time.CLOCK_MONOTONIC) - host["clock"]["base_ns"] < 60_000_000_000
    table = invoke("status", "--name", spare_name)
    assert table.exit_code == 0
    assert "h1>l1" in table.output


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["status"], 1, "is not up"),
        (["cut", "h1-l1"], 1, "is not up"),
        (["exec", "h1", "--", "true"], 1, "is not up"),
        (["up", "--rate", "fast"], 2, "'fast' is not a rate"),
        (["up", "--queue", "1"], 2, "'1' is not a queue"),
        (["up", "--nics", "3"], 2, "--nics is 3"),
        (["cut", "h1-l1", "--silent", "--loss", "1%"], 2, "exclude each other"),
        (["cut", "h1-l1", "--direction", "h1>l1"], 2, "lost both ways"),
        (["cut", "h1-l1", "--loss", "150%"], 2, "more than 1"),
    ],
)
def test_mistakes_get_an_explanation(
    spare_name: str, arguments: list[str], status: int, complaint: str
) -> None:
    failed = run_command(arguments[0], "--name", spare_name, *arguments[1:])
    assert failed.returncode == status
    assert complaint in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


def test_a_machine_without_the_bpf_file_system_gets_it(spare_name: str) -> None:
    """As one has that has only just started: its hosts' agents would each mount their own, which nobody else sees."""
    lab = f"{sys.executable} -m tools.lab"
    steps = (
        f"umount -l {BPFFS} 2>/dev/null",
        f"{lab} up --name {spare_name} {' '.join(SMALL)}",
        f"stat -f -c %T {BPFFS}",
        f"{lab} down --name {spare_name}",
    )
    shell = ["unshare", "--mount", "sh", "-c", "; ".join(steps)]
    done = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert "bpf_fs" in done.stdout.split(), done.stderr
