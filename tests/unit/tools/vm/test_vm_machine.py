"""The virtual machine's process: its end, its time, and whether it has begun; a shell stands for QEMU."""

import sys
import time
from pathlib import Path

import pytest

from tools.vm import machine
from tools.vm.machine import MachineError, StoodStillError


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_command", lambda _kernel, command, _shared, _devices: list(command))
    monkeypatch.setattr(machine, "_STILL_S", 0.5)
    monkeypatch.setattr(machine, "_LOOK_S", 0.05)


def boot(shared: Path, script: str, timeout_s: float = 10.0) -> int:
    command = ["sh", "-c", f"cd {shared}; {script}"]
    return machine.boot(Path("vmlinuz"), command, shared, timeout_s, begun=shared / "begun")


@pytest.mark.usefixtures("boots")
def test_one_that_has_begun_has_its_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert boot(tmp_path, "echo here; touch begun; sleep 1; exit 3") == 3
    assert capfd.readouterr().err == "here\n"
    with pytest.raises(MachineError, match="was not done after 1 s"):
        boot(tmp_path, "sleep 60", timeout_s=1.0)


@pytest.mark.usefixtures("boots")
def test_one_that_stands_still_before_it_begins_is_ended(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with pytest.raises(StoodStillError, match="stood still"):
        boot(tmp_path, "sleep 60")
    assert time.monotonic() - began_s < 10.0


@pytest.mark.usefixtures("boots")
def test_one_that_reads_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "slow").write_bytes(bytes(machine._MOVING_BYTES))
    reads = "import sys, time\nfor _ in range(8): open('slow', 'rb').read(); time.sleep(0.2)"
    assert boot(tmp_path, f'{sys.executable} -c "{reads}"; touch begun; exit 3') == 3


@pytest.mark.usefixtures("boots")
def test_one_that_ends_before_it_begins_has_ended(tmp_path: Path) -> None:
    assert boot(tmp_path, "exit 1") == 1
