"""Trees that lie, loop, hang and flood: what is read is bounded, what cannot be is told, and the rest stays as it was."""

import asyncio
import os
import random
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import audit_trees
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.audit import growth, subjects
from cwdp.audit.areas.all import AREAS, notes_of
from cwdp.audit.collecting import Wanted, collect
from cwdp.audit.files import MOST_BYTES, MOST_ENTRIES, Files
from cwdp.audit.notes import MOST_CHARACTERS, Notes, cpus, whole
from cwdp.audit.recorded import Recorded
from cwdp.audit.source import Source
from cwdp.audit.unreadable import Unreadable
from cwdp.shared.audit.facts import HostFacts

SEED = 20261127
Facts = dict[str, list[Notes]]


def garbage(rng: random.Random, sound: bytes) -> list[bytes]:
    """What a file may hold in place of what it should."""
    return [
        sound[: rng.randrange(len(sound) + 1)],
        bytes(byte ^ 1 << rng.randrange(8) if rng.random() < 0.05 else byte for byte in sound),
        b"",
        b"\x00\xff\xfe\x1b[2J\x07" + rng.randbytes(200),
        b"9" * 5000,
        b"-1",
        b'{"links": [' * 500,
        ("\N{RIGHT-TO-LEFT OVERRIDE}x = : , - 0-99999,\n" * 50).encode(),
        b"\n".join(rng.randbytes(12) for _ in range(30)),
    ]


class Traced(Recorded):
    """A tree that knows what was read of it."""

    def __init__(self, root: Path, overlay: str = "") -> None:
        super().__init__(root, overlay)
        self.read: set[str] = set()
        opened = self._files._read

        def seen(path: str, most: int) -> bytes:
            self.read.add(self._files.target(path).lstrip("/"))
            return opened(path, most)

        self._files._read = seen  # type: ignore[method-assign]

    def later(self) -> "Traced":
        found = Traced(self._root, "later")
        found.read = self.read
        return found


def facts_by_area(source: Source) -> Facts:
    """What each area notes, in this process."""
    found = subjects.find(source, {})
    first = growth.take(source, found)
    told: Facts = {}
    for area in AREAS:
        try:
            told[area] = notes_of(area, source, found, first)
        except Unreadable as reason:
            told[area] = [Notes("host", area, missing={"": reason.message})]
    return told


def collected(root: Path) -> HostFacts:
    return asyncio.run(collect(Wanted(host="a", root=str(root))))


@pytest.mark.parametrize("name", ["cloud", "v100"])
def test_garbage_in_each_file_changes_only_what_is_read_of_it(name: str, tmp_path: Path) -> None:
    root = audit_trees.write(name, tmp_path / name)
    sound = facts_by_area(Recorded(root))
    readers = readers_of(root)
    rng = random.Random(SEED)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    assert len(files) > 50
    for path in files:
        kept, where = path.read_bytes(), str(path.relative_to(root))
        path.write_bytes(rng.choice(garbage(rng, kept)))
        told = facts_by_area(Recorded(root))
        path.write_bytes(kept)
        assert_sane(told)
        if "subjects" in readers.get(where, set()):
            continue
        changed = {area for area in AREAS if told[area] != sound[area]}
        assert changed <= readers.get(where, set()), where


def readers_of(root: Path) -> dict[str, set[str]]:
    """Which areas read each file."""
    found: dict[str, set[str]] = {}
    source = Traced(root)
    known = subjects.find(source, {})
    first = growth.take(source, known)
    readers: dict[str, Callable[[], Any]] = {
        "subjects": lambda: growth.take(source, subjects.find(source, {}))
    }
    readers |= {area: lambda area=area: notes_of(area, source, known, first) for area in AREAS}  # type: ignore[misc]
    for area, read in readers.items():
        source.read.clear()
        read()
        for path in source.read:
            found.setdefault(path, set()).add(area)
    counted = {path for path, areas in found.items() if areas & {"counters", "rdma"}}
    return {
        path: areas - {"subjects"} if path in counted and "ndevs" not in path else areas
        for path, areas in found.items()
    }


def assert_sane(told: Facts) -> None:
    """Values are bounded and steer no terminal."""
    for notes in (one for area in told.values() for one in area):
        for value in [*notes.facts.values(), *notes.missing.values()]:
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    assert len(text) <= MOST_CHARACTERS + 3
                    assert not set(text) & {chr(code) for code in (*range(32), *range(127, 160))}
                else:
                    assert abs(text) < 1 << 63


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_numbers_and_lists_are_read_or_refused(text: str) -> None:
    for read in (whole, cpus):
        with suppress(Unreadable):
            assert read(text) is not None


def cloud(tmp_path: Path) -> Path:
    return audit_trees.write("cloud", tmp_path / "cloud")


def replaced(root: Path, path: str, make: Callable[[Path], object]) -> tuple[HostFacts, HostFacts]:
    """Facts before and after a file has become something else."""
    before = collected(root)
    (root / path).unlink()
    make(root / path)
    began = time.monotonic()
    after = collected(root)
    assert time.monotonic() - began < 5
    return before, after


CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b"tsc\n" * (10 << 18)), "larger than 64 KiB"),
        (os.mkfifo, "no regular file"),
        (lambda path: path.mkdir(), "no regular file"),
        (lambda path: path.symlink_to(path.name), "links that loop"),
        (lambda path: path.symlink_to("/etc/hostname"), "no such file"),
        (lambda path: path.symlink_to("../" * 20 + "etc/hostname"), "a link out of the tree"),
        (lambda path: path.symlink_to("/dev/zero"), "no such file"),
        (lambda path: path.symlink_to("x" * 300), "file name too long"),
    ],
    ids=["10 MiB", "FIFO", "folder", "loop", "absolute", "escape", "device", "long name"],
)
def test_a_file_that_is_none_is_a_reason(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    before, after = replaced(cloud(tmp_path), CLOCK, make)
    host_before, host_after = before.subjects[0], after.subjects[0]
    assert host_after.missing == host_before.missing | {"clock_source": reason}
    assert host_after.facts == {
        key: value for key, value in host_before.facts.items() if key != "clock_source"
    }
    assert after.subjects[1:] == before.subjects[1:]
    assert after.troubles == {}


def test_two_links_that_lead_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Unreadable, match="links that loop"):
        Files(tmp_path).text("a")


def test_a_socket_and_a_device_are_not_opened(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no regular file"):
        Files(Path("/")).text("dev/null")
    with pytest.raises(Unreadable, match="no regular file"):
        Files(Path("/")).text("dev/zero")


def test_a_file_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    if os.geteuid() == 0:
        pid = os.fork()
        if pid == 0:
            tmp_path.chmod(0o755)
            for folder in tmp_path.parents:
                if not folder.stat().st_mode & stat.S_IXOTH:
                    folder.chmod(0o755)
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os._exit(0 if _is_denied(tmp_path) else 1)
        assert os.waitpid(pid, 0)[1] == 0
    else:
        assert _is_denied(tmp_path)


def _is_denied(folder: Path) -> bool:
    try:
        Files(folder).text("secret")
    except Unreadable as reason:
        return reason.message == "permission denied: root only"
    return False


def test_a_folder_of_100_000_entries(tmp_path: Path) -> None:
    root = cloud(tmp_path)
    for i in range(100_000):
        os.close(os.open(root / "sys/bus/pci/devices" / f"x{i}", os.O_CREAT | os.O_WRONLY))
    began = time.monotonic()
    found = collected(root)
    assert time.monotonic() - began < 10
    assert [one.kind for one in found.subjects] == ["host", "nic", "rdma"]
    assert found.troubles == {
        "subjects 1": f"sys/bus/pci/devices: more than {subjects.MOST_LISTED:,} entries"
    }
    assert found.subjects[0].missing["acs_bridges"] == f"more than {MOST_ENTRIES:,} entries"


def test_thousands_of_interfaces_of_containers_are_not_told(tmp_path: Path) -> None:
    root = cloud(tmp_path)
    for i in range(5000):
        (root / f"sys/class/net/veth{i}").mkdir()
    found = collected(root)
    assert [one.name for one in found.subjects if one.kind == "nic"] == ["ens5"]
    assert found.troubles == {}


def test_more_nics_than_are_told_are_a_trouble(tmp_path: Path) -> None:
    root = cloud(tmp_path)
    for i in range(300):
        (root / f"sys/class/net/n{i:03}/device").mkdir(parents=True)
    (root / "answers/links.json").unlink()
    found = collected(root)
    nics = [one.name for one in found.subjects if one.kind == "nic"]
    assert len(nics) == subjects.MOST_SUBJECTS
    assert "ens5" in nics
    assert found.troubles["subjects 1"] == "301 NICs, of which 256 are told"


def test_an_empty_tree_has_reasons_only(tmp_path: Path) -> None:
    found = collected(tmp_path)
    assert [one.kind for one in found.subjects] == ["host"]
    assert found.subjects[0].missing["kernel_release"] == "not recorded"
    assert found.troubles == {"links": "not recorded"}


def test_what_is_read_in_part_of_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: X\n" * 10_000)
    assert len(Files(tmp_path).head("cpuinfo")) <= MOST_BYTES
    assert set(Files(tmp_path).head("cpuinfo").splitlines()) == {"model name\t: X"}


@pytest.mark.parametrize(
    "answer", [b"", b"[", b"\xe3(", b"[" * 100_000, b'{"release": 5}', b'{"problem": 5}', b"null"]
)
def test_an_answer_that_is_garbled_is_a_reason(answer: bytes, tmp_path: Path) -> None:
    root = cloud(tmp_path)
    before = collected(root)
    (root / "answers/uname.json").write_bytes(answer)
    after = collected(root)
    assert after.troubles == {}
    assert after.subjects[0].missing["kernel_release"].startswith("recorded, but not to be understood: ")
    assert after.subjects[1:] == before.subjects[1:]


def test_an_answer_of_a_newer_cwdp_is_understood(tmp_path: Path) -> None:
    root = cloud(tmp_path)
    (root / "answers/uname.json").write_text('{"release": "6.1", "machine": "x86_64", "domain": "new"}')
    assert collected(root).subjects[0].facts["kernel_release"] == "6.1"
