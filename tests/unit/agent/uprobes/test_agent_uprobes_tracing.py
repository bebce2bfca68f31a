"""What the process does, without a kernel: a program's libraries come and go, and what cannot be traced is said."""

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cwdp.agent.uprobes import libraries, tracing
from cwdp.agent.uprobes.cgroups import Mounts
from cwdp.agent.uprobes.mapped import NCCL, VERBS
from cwdp.agent.uprobes.orders import COUNTERS, STATES
from cwdp.agent.uprobes.probes.records import QP_CREATED, CallSeen, CommSeen, QpSeen, Seen
from cwdp.agent.uprobes.probes.tracer import TracerError
from cwdp.agent.uprobes.requirements import Lack
from cwdp.agent.uprobes.tracing import Tracing


class Probes:
    """Attaches to nothing."""

    def __init__(self) -> None:
        self.attached: dict[Path, str] = {}
        self.named: tuple[set[int], set[int]] = (set(), set())
        self.seen: list[Seen] = []
        self.refuses = ""

    def name(self, cgroups: Iterable[int], pids: Iterable[int]) -> None:
        self.named = set(cgroups), set(pids)

    def attach(self, path: Path, kind: str) -> int:
        if self.refuses:
            raise TracerError(self.refuses)
        self.attached[path] = kind
        return 1

    def detach(self, path: Path) -> None:
        del self.attached[path]

    def read(self, wait_s: float) -> list[Seen]:
        taken, self.seen = self.seen, []
        return taken if wait_s >= 0 else []

    def counts(self) -> dict[str, int]:
        return {"lost": 3, "unmatched": 0, "unreadable": 0, "refused": 0}


class World:
    """A cgroup, in files, and this host's programs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cgroup = folder / "cgroups/train"
        self.root = folder / "root"
        self.probes = Probes()
        self.levels: list[int] = []
        self.lacking: Lack | None = None
        self.refuses = ""
        self.tracing = Tracing(["/train"], Mounts(folder / "cgroups", []), self._make, lambda: self.lacking)
        monkeypatch.setattr(libraries, "USUAL", ())

    def _make(self, levels: Iterable[int]) -> Probes:
        if self.refuses:
            raise TracerError(self.refuses)
        self.levels = list(levels)
        return self.probes

    def put(self, *pids: int) -> None:
        self.cgroup.mkdir(parents=True, exist_ok=True)
        (self.cgroup / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[int]:
    """A program that has a library mapped by a name of NCCL's."""
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(Path("/bin/true").resolve().read_bytes())
    script = (
        "import mmap, sys; f = open(sys.argv[1], 'rb'); "
        "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC); print('ready', flush=True); input()"
    )
    with subprocess.Popen(
        ("/usr/bin/python3", "-c", script, library),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RANK": "3", "SLURM_JOB_ID": "4711"},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_library_is_attached_to_for_as_long_as_it_is_used(world: World, program: int) -> None:
    world.tracing.look(0)
    assert world.tracing.trouble == "no such cgroup: /train"
    world.put(program)
    world.tracing.look(1)
    assert list(world.probes.attached.values()) == [NCCL]
    assert world.levels == [1]
    assert world.probes.named == ({world.cgroup.stat().st_ino}, set())
    assert (world.tracing.trouble, world.tracing.is_tracing) == ("", True)
    world.put()
    world.tracing.look(2)
    assert (world.probes.attached, world.tracing.is_tracing) == ({}, False)
    numbers = world.tracing.word().counters
    assert set(numbers) == {f"uprobes_{name}" for name in (*COUNTERS, *STATES)}
    assert (numbers["uprobes_attached"], numbers["uprobes_records_lost"]) == (1, 3)


def test_what_is_missing_is_said_before_there_is_a_program_and_no_more_when_it_is_there(
    world: World, program: int
) -> None:
    world.lacking = Lack("no headers", "install them")
    world.put()
    world.tracing.look(0)
    assert world.tracing.word().trouble == "no headers: install them"
    world.lacking = None
    world.tracing.look(1)
    assert world.tracing.word().trouble == ""
    world.put(program)
    world.tracing.look(2)
    assert world.tracing.is_tracing


def test_what_does_not_compile_is_tried_again_after_a_while(world: World, program: int) -> None:
    world.put(program)
    world.refuses = "bcc cannot compile"
    world.tracing.look(0)
    world.refuses = ""
    world.tracing.look(tracing.RETRY_S - 1)
    assert world.tracing.trouble == "bcc cannot compile"
    world.tracing.look(tracing.RETRY_S)
    assert (world.tracing.trouble, world.tracing.is_tracing) == ("", True)


def test_a_library_that_cannot_be_attached_to_is_tried_once(world: World, program: int) -> None:
    world.put(program)
    world.probes.refuses = "the kernel refuses"
    for now_s in range(3):
        world.tracing.look(now_s)
    assert world.tracing.trouble == "the kernel refuses"
    assert world.tracing.word().counters["uprobes_attach_failed"] == 1
    world.put()
    world.tracing.look(3)
    assert world.tracing.trouble == ""


def test_what_is_seen_is_told_with_whose_it_is(world: World, program: int) -> None:
    world.put(program)
    world.tracing.look(0)
    world.probes.seen = [
        QpSeen(QP_CREATED, program, 1, "mlx5_0", 17, 0, None, 0, 0, None),
        CommSeen(True, program, 2, 0x10, 99, 3, 8),
        CallSeen(program, program, 3, 1, 2, 64, 0x10, -1),
    ]
    world.tracing.read(0)
    assert world.tracing.has_news
    word = world.tracing.word()
    ((seen, owner),) = word.queue_pairs
    assert (seen.qpn, owner.pid, owner.told_job) == (17, program, "SLURM_JOB_ID=4711")
    assert owner.started > 0
    assert word.calls is not None
    assert [(comm.rank, comm.job) for comm in word.calls.comms] == [(3, "slurm:4711")]
    assert not world.tracing.has_news


def test_a_program_with_the_plug_in_tells_of_its_calls_itself(world: World, program: int) -> None:
    world.put(program)
    world.tracing.look(0)
    world.tracing._libraries._programs[program].has_plugin = True
    world.probes.seen = [CallSeen(program, program, 3, 1, 2, 64, 0x10, -1)]
    world.tracing.read(0)
    word = world.tracing.word()
    assert (word.calls, word.counters["uprobes_calls_of_plugins"]) == (None, 1)


def test_a_flood_of_queue_pairs_is_told_bit_by_bit_and_what_is_too_much_counted(
    world: World, program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MOST_QPS_WAITING", 2_000)
    world.put(program)
    world.tracing.look(0)
    world.probes.seen = [
        QpSeen(QP_CREATED, program, 1, "mlx5_0", n, 0, None, 0, 0, None) for n in range(2_500)
    ]
    world.tracing.read(0)
    first, second = world.tracing.word(), world.tracing.word()
    assert (len(first.queue_pairs), len(second.queue_pairs)) == (1_024, 976)
    assert second.counters["uprobes_queue_pairs_untold"] == 500


def test_programs_that_cannot_be_looked_at(world: World) -> None:
    with subprocess.Popen(("true",)) as done:
        done.wait()
    world.put(done.pid)
    for now_s in range(3):
        world.tracing.look(now_s)
    assert "CAP_SYS_PTRACE" in world.tracing.trouble
    assert os.getpid() != done.pid
    assert VERBS != NCCL
