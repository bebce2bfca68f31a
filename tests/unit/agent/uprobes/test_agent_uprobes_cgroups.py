"""Named cgroups of both versions, as files; what uprobes lack on a host."""

import os
from pathlib import Path

import pytest

from cwdp.agent.uprobes import requirements
from cwdp.agent.uprobes.cgroups import Mounts, find, level, mounts
from cwdp.agent.uprobes.requirements import SOURCE, lack

MOUNTINFO = """\
24 30 0:22 / /proc rw - proc proc rw
30 1 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory
33 30 0:28 /docker/abc /mnt/part rw shared:12 - cgroup2 cgroup2 rw
"""


def test_where_hierarchies_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    assert mounts(tmp_path / "mountinfo") == Mounts(
        Path("/sys/fs/cgroup/unified"), [Path("/sys/fs/cgroup/memory")]
    )


def make(mount: Path, name: str, *pids: int) -> int:
    folder = mount / name.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder.stat().st_ino


@pytest.fixture
def where(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path / "two", [tmp_path / "memory", tmp_path / "cpu"])


def test_those_of_version_2_are_told_by_number_with_all_below(where: Mounts) -> None:
    assert where.unified is not None
    number = make(where.unified, "/train", 1)
    make(where.unified, "/train/step", 2, 3)
    make(where.unified, "/other", 4)
    make(where.others[0], "/train", 5)
    named = find(["/train", "/none"], where)
    assert (named.ids, named.pids, named.by_pid, named.missing) == (
        {number},
        {1, 2, 3},
        frozenset(),
        ["/none"],
    )


def test_those_of_version_1_only_are_told_by_their_programs(where: Mounts) -> None:
    for mount in where.others:
        make(mount, "/slurm/job_1", 1)
        make(mount, "/slurm/job_1/step_0", 2)
    named = find(["/slurm"], where)
    assert (named.ids, named.pids, named.by_pid, named.missing) == (frozenset(), {1, 2}, {1, 2}, [])
    assert find(["/slurm"], Mounts(None, where.others)) == named


def test_a_pattern_names_all_that_are_like_it(where: Mounts) -> None:
    assert where.unified is not None
    numbers = {make(where.unified, f"/pods/pod{i}/box", i) for i in range(3)}
    make(where.unified, "/pods/box", 9)
    assert find(["/pods/pod*/box"], where).ids == numbers
    assert [level(name) for name in ("/", "/pods", "/pods/pod*/box")] == [0, 1, 3]


def test_the_root_is_all_programs(where: Mounts) -> None:
    assert where.unified is not None
    number = make(where.unified, "/", 1)
    make(where.unified, "/a", 2)
    assert find(["/"], where)[:2] == ({number}, {1, 2})


def headers(folder: Path) -> Path:
    (folder / "include/linux").mkdir(parents=True)
    return folder


def lacks(modules: Path, **environ: str) -> str:
    found = lack(modules, modules / "kheaders.tar.xz", environ)
    return "" if found is None else f"{found.what}: {found.next_step}"


@pytest.fixture
def with_bcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "has_bcc", lambda: True)


@pytest.mark.usefixtures("with_bcc")
def test_headers_are_those_of_the_kernel_or_named(tmp_path: Path) -> None:
    assert f"no headers of the kernel {os.uname().release}" in lacks(tmp_path)
    headers(tmp_path / os.uname().release / "build")
    assert lacks(tmp_path) == ""
    other = tmp_path / "other"
    assert f"no kernel headers in {other}" in lacks(tmp_path, **{SOURCE: str(other)})
    headers(other)
    assert lacks(tmp_path, **{SOURCE: str(other)}) == ""


@pytest.mark.usefixtures("with_bcc")
def test_headers_that_the_kernel_has_itself(tmp_path: Path) -> None:
    (tmp_path / "kheaders.tar.xz").write_bytes(b"")
    assert lacks(tmp_path) == ""


def test_without_bcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "has_bcc", lambda: False)
    assert "python3-bpfcc" in lacks(tmp_path)


def test_another_project_of_that_name_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not requirements.has_bcc()
    (tmp_path / "bcc/libbcc.py").write_text("")
    assert requirements.has_bcc()


@pytest.mark.usefixtures("with_bcc")
def test_another_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "MACHINE", "other")
    assert "not on" in lacks(tmp_path)
