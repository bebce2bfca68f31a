"""Programs of tests are held in memory while tests run, and no longer."""

import os
import tempfile
import threading
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
def test_programs_are_held_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(bytes(4 << 20))
    before = children()
    with memory.held([tmp_path, tmp_path / "not there"]):
        (holder,) = children() - before
        assert wait_for(lambda: locked_kb(holder) >= 4096, 20.0)
    assert children() <= before


def test_where_there_is_no_vmtouch_tests_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    before = children()
    with memory.held([tmp_path]):
        assert children() == before


def test_folders_are_listed_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LIST_EVERY_S", 0.01)
    (tmp_path / "module.py").touch()
    os.utime(tmp_path, (0, 0))
    before = threading.active_count()
    with memory.listed([tmp_path, tmp_path / "not there"]):
        assert wait_for(lambda: tmp_path.stat().st_atime > 0, 20.0)
    assert threading.active_count() == before


@pytest.fixture
def only_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user, who may hold nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(memory, "LEAST_BYTES", 0)
    monkeypatch.setattr(memory, "LEAST_ROOM_BYTES", 0)


@pytest.mark.usefixtures("only_temporary_files")
@pytest.mark.parametrize("before", [None, "/var/tmp"])
def test_temporary_files_are_in_memory_meanwhile(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)
    if before is not None:
        monkeypatch.setenv("TMPDIR", before)
    with memory.kept_in_memory():
        folder = Path(tempfile.gettempdir())
        assert folder.parent == memory.MEMORY
        assert folder.stat().st_mode & 0o7777 == 0o1777
        (folder / "left").touch()
        assert os.environ["TMPDIR"] == str(folder)
    assert not folder.exists()
    assert os.environ.get("TMPDIR") == before
    assert tempfile.gettempdir() == (before or "/tmp")


@pytest.mark.usefixtures("only_temporary_files")
@pytest.mark.parametrize("lacking", ["memory", "room", "file system"])
def test_they_are_not_where_there_is_no_room(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "memory":
        monkeypatch.setattr(memory, "LEAST_BYTES", 1 << 60)
    elif lacking == "room":
        monkeypatch.setattr(memory, "LEAST_ROOM_BYTES", 1 << 60)
    else:
        monkeypatch.setattr(memory, "MEMORY", Path("/proc"))
    before = os.environ.get("TMPDIR")
    with memory.kept_in_memory():
        assert os.environ.get("TMPDIR") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("used", ["", "lab/mine", "manager.sock"])
def test_labs_write_to_memory_unless_something_is_there(
    used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labs = tmp_path / "lab"
    monkeypatch.setattr(memory, "RUN_ROOT", labs)
    monkeypatch.setattr(memory, "_is_memory", lambda _folder: False)
    labs.mkdir()
    if used:
        (tmp_path / used).touch()
    with memory._labs():
        assert os.path.ismount(tmp_path) is not bool(used)
    assert not os.path.ismount(tmp_path)
