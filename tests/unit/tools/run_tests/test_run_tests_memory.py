"""Programs of tests are held in memory while tests run, and no longer."""

import os
from pathlib import Path

import pytest

from tools.run_tests import memory
from tools.waiting import wait_for


def locked_kb(pid: int) -> int:
    """What a process holds in memory (proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))


def children() -> set[int]:
    """Processes that this one started."""
    return {
        int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
    }


@pytest.mark.needs("vmtouch")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may hold so much")
def test_they_are_held_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program").write_bytes(bytes(4 << 20))
    monkeypatch.setattr(memory, "FOLDERS", (tmp_path, tmp_path / "not there"))
    monkeypatch.setattr(memory, "LEAST_BYTES", 0)
    before = children()
    with memory.held_in_memory():
        (holder,) = children() - before
        assert wait_for(lambda: locked_kb(holder) >= 4096, 20.0)
    assert children() <= before


@pytest.mark.parametrize("lacking", ["root", "vmtouch", "memory"])
def test_where_that_cannot_be_tests_run_all_the_same(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    elif lacking == "vmtouch":
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        monkeypatch.setattr(memory, "LEAST_BYTES", 1 << 60)
    before = children()
    with memory.held_in_memory():
        assert children() == before
