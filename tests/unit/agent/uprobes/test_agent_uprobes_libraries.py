"""Which library of a program is traced, and where in its file: versions of symbols, mappings, containers' own files."""

import os
import subprocess
import sys
from pathlib import Path

import need
import pytest

from cwdp.agent.programs.programs import started
from cwdp.agent.uprobes.libraries import File, Libraries
from cwdp.agent.uprobes.mapped import NCCL, VERBS, FileId, Library, Mapped, mapped, parse, reach
from cwdp.agent.uprobes.probes import elf
from cwdp.agent.uprobes.probes.tracer import TracerError, places
from tools.uprobes import build

VERBS_NAMES = ("ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need.installed("gcc")
    return build(tmp_path_factory.mktemp("uprobes")).parent


def sections(path: Path) -> tuple[int, int]:
    """The address and the offset of .text, as binutils has them."""
    shown = subprocess.run(("readelf", "-SW", path), capture_output=True, text=True, check=True).stdout
    words = next(line for line in shown.splitlines() if " .text " in line).split(" .text ")[1].split()
    return int(words[1], 16), int(words[2], 16)


def test_both_versions_of_a_function_are_found_where_binutils_has_them(folder: Path) -> None:
    path = folder / "libibverbs.so.1"
    found = elf.functions(path.read_bytes(), VERBS_NAMES)
    named = {(one.name, one.version, one.is_default) for one in found}
    assert named == {
        (name, version, version == "IBVERBS_1.1")
        for name in VERBS_NAMES
        for version in ("IBVERBS_1.0", "IBVERBS_1.1")
    }
    shown = subprocess.run(("objdump", "-T", path), capture_output=True, text=True, check=True).stdout
    addresses = {int(line.split()[0], 16) for line in shown.splitlines() if " ibv_" in line}
    assert {one.address for one in found} == addresses
    address, offset = sections(path)
    assert address != offset
    assert {one.address - one.offset for one in found} == {address - offset}


def test_the_version_that_programs_call_is_traced(folder: Path) -> None:
    path = folder / "libibverbs.so.1"
    later = {one.name: one.offset for one in elf.functions(path.read_bytes(), VERBS_NAMES) if one.is_default}
    assert places(path, VERBS) == later
    assert len(places(folder / "libnccl.so.2", NCCL)) == 11


def test_a_library_with_other_versions_is_left_alone(folder: Path, tmp_path: Path) -> None:
    data = (folder / "libibverbs.so.1").read_bytes().replace(b"IBVERBS_1.1\0", b"IBVERBS_2.0\0")
    (tmp_path / "libibverbs.so.1").write_bytes(data)
    assert places(tmp_path / "libibverbs.so.1", VERBS) == {}


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01" + bytes(20)]
)
def test_what_is_no_library(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(elf.ElfError):
        elf.functions(data, VERBS_NAMES)
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(TracerError, match="cannot read"):
        places(tmp_path / "f", VERBS)


def test_a_library_that_was_cut_off_or_damaged(folder: Path) -> None:
    data = (folder / "libibverbs.so.1").read_bytes()
    for end in range(0, len(data), 97):
        with pytest.raises(elf.ElfError):
            elf.functions(data[:end], VERBS_NAMES)
    for place in range(0, len(data), 61):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF
        try:
            elf.functions(bytes(damaged), VERBS_NAMES)
        except elf.ElfError:
            continue


MAPS = """\
55d0c0000000-55d0c0001000 r-xp 00000000 fd:01 11 /usr/bin/python3
7f0000000000-7f0000010000 r--p 00000000 fd:01 22 /usr/lib/libibverbs.so.1.14.44.0
7f0000010000-7f0000020000 r-xp 00010000 fd:01 22 /usr/lib/libibverbs.so.1.14.44.0
7f0000030000-7f0000040000 r-xp 00010000 fd:01 33 /venv dir/nvidia/nccl/lib/libnccl.so.2
7f0000050000-7f0000060000 r-xp 00010000 fd:01 44 /x/libnccl.so.2 (deleted)
7f0000070000-7f0000080000 r-xp 00010000 fd:01 55 /x/libnccl-net.so.bak/data
7f0000090000-7f00000a0000 rw-p 00000000 00:00 0
7f00000b0000-7f00000c0000 r-xp 00000000 00:00 0 [vdso]
"""


def test_what_a_program_has_mapped() -> None:
    assert parse(MAPS) == Mapped(
        [
            Library(VERBS, "/usr/lib/libibverbs.so.1.14.44.0", 22),
            Library(NCCL, "/venv dir/nvidia/nccl/lib/libnccl.so.2", 33),
            Library(NCCL, "/x/libnccl.so.2", 44),
        ],
        has_plugin=False,
    )
    assert parse(MAPS + "1-2 r-xp 0 fd:01 9 /usr/lib/cwdp/verbs/libcwdp_nccl.so\n").has_plugin


def test_a_program_that_is_gone_has_nothing() -> None:
    done = subprocess.Popen(("true",))
    done.wait()
    assert (mapped(done.pid), started(done.pid)) == (None, None)


def make_root(proc: Path, pid: int, *names: str) -> None:
    for name in names:
        path = proc / str(pid) / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def test_a_container_s_file_is_come_by_through_its_own_tree(tmp_path: Path) -> None:
    make_root(tmp_path, 7, "usr/lib/libnccl.so.2")
    path = tmp_path / "7/root/usr/lib/libnccl.so.2"
    status = path.stat()
    library = Library(NCCL, "/usr/lib/libnccl.so.2", status.st_ino)
    assert reach(7, library, tmp_path) == (path, FileId(status.st_dev, status.st_ino))
    assert reach(7, library._replace(inode=status.st_ino + 1), tmp_path) is None
    assert reach(8, library, tmp_path) is None


class World:
    """Programs as the kernel tells of them."""

    def __init__(self, proc: Path) -> None:
        self.started: dict[int, int] = {}
        self.maps: dict[int, Mapped | None] = {}
        self.looks: list[int] = []
        self.proc = proc
        self.libraries = Libraries(self.started.get, self._look, proc)

    def _look(self, pid: int) -> Mapped | None:
        self.looks.append(pid)
        return self.maps.get(pid)

    def has(self, pid: int, name: str) -> FileId:
        """A program has mapped a library of NCCL."""
        make_root(self.proc, pid, name)
        status = (self.proc / str(pid) / "root" / name).stat()
        self.maps[pid] = Mapped([Library(NCCL, f"/{name}", status.st_ino)], has_plugin=False)
        self.started.setdefault(pid, 1)
        return FileId(status.st_dev, status.st_ino)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_programs_are_looked_at_more_and_more_seldom(world: World) -> None:
    world.has(1, "libnccl.so")
    times = []
    for now_s in range(80):
        world.libraries.follow([1], float(now_s))
        times += [now_s] * len(world.looks)
        world.looks.clear()
    assert times == [0, 1, 3, 7, 15, 31, 47, 63, 79]


def test_a_library_counts_as_long_as_a_program_has_it(world: World) -> None:
    file = world.has(1, "libnccl.so")
    assert world.libraries.follow([1], 0) == {file: File(world.proc / "1/root/libnccl.so", NCCL)}
    assert file in world.libraries.follow([1], 0.5)
    assert world.libraries.follow([], 1) == {}
    assert len(world.libraries) == 0


def test_another_program_with_the_same_number_is_looked_at_anew(world: World) -> None:
    first = world.has(1, "libnccl.so")
    assert set(world.libraries.follow([1], 0)) == {first}
    second = world.has(1, "other/libnccl.so")
    assert set(world.libraries.follow([1], 0.5)) == {first}
    world.started[1] = 2
    assert set(world.libraries.follow([1], 0.6)) == {second}


def test_libibverbs_is_found_before_it_is_mapped(world: World) -> None:
    make_root(world.proc, 1, "usr/lib64/libibverbs.so.1")
    world.started[1], world.maps[1] = 1, Mapped([], has_plugin=True)
    (file,) = world.libraries.follow([1], 0).values()
    assert file == File(world.proc / "1/root/usr/lib64/libibverbs.so.1", VERBS)
    assert world.libraries.has_plugin(1)
    assert not world.libraries.has_plugin(2)


def test_what_cannot_be_looked_at_is_counted_and_told(world: World) -> None:
    world.started[1] = 1
    for _ in range(2):
        world.libraries.follow([1, 2], 0)
        assert not world.libraries.are_hidden
    world.libraries.follow([1, 2], 0)
    assert world.libraries.are_hidden
    assert world.libraries.unreadable == 1
    world.has(2, "libnccl.so")
    world.libraries.follow([1, 2], 0)
    assert not world.libraries.are_hidden
    world.maps[2] = Mapped([Library(NCCL, "/gone", 3)], has_plugin=False)
    world.libraries.follow([1, 2], 50)
    assert world.libraries.unreachable == 1


def test_a_real_program_s_own() -> None:
    found = mapped(os.getpid())
    assert found is not None
    assert started(os.getpid()) == started(os.getpid())
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as other:
        assert started(other.pid) not in (None, 0)
        other.communicate(b"\n")
