"""Uprobes by bcc on a running kernel: what a program of a named cgroup calls is seen, all of it, and of no other program anything."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cwdp.agent.uprobes.cgroups import mounts
from cwdp.agent.uprobes.probes.records import QP_CHANGED, QP_CREATED, QP_DESTROYED
from cwdp.shared.bus.collectives import ENQUEUED, FUNCTIONS
from tools.uprobes import Caller, TracingProcess, cgroup, unified

pytestmark = pytest.mark.kernel

WAIT_S = 60.0
RTR = 2
NAME = "cwdp-test-uprobes"


@pytest.fixture
def mount() -> Iterator[Path]:
    with unified() as found:
        yield found


@pytest.fixture
def named_cgroup(mount: Path) -> Iterator[Path]:
    with cgroup(mount, NAME) as made:
        yield made


@pytest.fixture
def old_cgroup() -> Iterator[Path]:
    others = mounts().others
    if not others:
        pytest.skip("no cgroups of version 1 are mounted here")
    with cgroup(others[-1], NAME) as made:
        yield made


class Process(TracingProcess):
    """The agent's process, and what is done with it here."""

    def until_traced(self, caller: Caller) -> None:
        """Listen until a program's libraries are attached to, after which it is looked at no more for what it has."""
        seen = len(self.queue_pairs)
        while len(self.queue_pairs) == seen:
            caller.do("keep")
            self.listen()
        self.until(lambda: self.word.counters["uprobes_libraries"] >= 2)
        caller.do("drop")
        self.until(lambda: self.queue_pairs[-1][0].kind == QP_DESTROYED)
        self.queue_pairs.clear()
        self.calls.clear()

    def settle(self, caller: Caller) -> None:
        """Have all be said that was done until now: what is seen of a last queue pair comes after it."""
        before = len(self.queue_pairs)
        caller.do("pass")
        self.until(lambda: len(self.queue_pairs) > before and self.queue_pairs[-1][0].kind == QP_DESTROYED)
        del self.queue_pairs[-5:]


def test_all_of_a_named_program_and_nothing_of_another(program: Path, named_cgroup: Path) -> None:
    with (
        Process(f"/{NAME}") as process,
        Caller(program, named_cgroup, SLURM_JOB_ID="4711") as named,
        Caller(program) as other,
    ):
        process.until_traced(named)
        for _ in range(4):
            named.do("pass", 250)
            other.do("pass", 250)
        named.do("old", 5)
        process.until(lambda: len(process.queue_pairs) >= 5_000)
        process.settle(named)
        assert len(process.queue_pairs) == 5_000
        assert {owner.pid for _, owner in process.queue_pairs} == {named.pid}
        assert {owner.told_job for _, owner in process.queue_pairs} == {"SLURM_JOB_ID=4711"}
        first = [seen for seen, _ in process.queue_pairs[:5]]
        assert [seen.kind for seen in first] == [QP_CREATED, QP_CHANGED, QP_CHANGED, QP_CHANGED, QP_DESTROYED]
        assert [seen.state for seen in first[1:4]] == [1, 2, 3]
        assert {(seen.device, seen.qpn) for seen in first} == {("fake0", first[0].qpn)}
        ready = first[2]
        assert (ready.port, ready.gid_index, ready.dest_qpn) == (2, 3, ready.qpn + 0x1000)
        assert ready.dgid == bytes([*[0] * 10, 0xFF, 0xFF, 10, 77, 2, 1])
        assert first[1].dgid is None
        assert abs(ready.time_ns - time.monotonic_ns()) < 1e9 * WAIT_S
        assert process.count("records_lost") == 0


def test_calls_of_nccl(program: Path, named_cgroup: Path) -> None:
    with (
        Process(f"/{NAME}") as process,
        Caller(program, named_cgroup) as one,
        Caller(program, named_cgroup) as two,
    ):
        process.until_traced(one)
        for rank, caller in enumerate((one, two)):
            caller.do("init" if rank else "config", rank + 1)
            caller.do("each", 2)
            caller.do("fail")
        process.until(lambda: len(process.calls) >= 28)
        process.settle(one)
        assert len(process.calls) == 28
        assert {comm.id for comm, _ in process.calls} == {process.calls[0][0].id}
        told = {
            (comm.pid, comm.rank, comm.ranks, FUNCTIONS[row["function"]], int(row["seq"]), int(row["bytes"]), int(row["peer"]))
            for comm, row in process.calls
        }  # fmt: skip
        each = [
            ("AllGather", 8, -1), ("AllReduce", 8, -1), ("Broadcast", 6, 3), ("Recv", 4, 4),
            ("Reduce", 20, 5), ("ReduceScatter", 24, -1), ("Send", 28, 7),
        ]  # fmt: skip
        assert told == {
            (caller.pid, rank, 8, name, seq, size, peer)
            for rank, caller in enumerate((one, two))
            for seq in range(2)
            for name, size, peer in each
        }
        for _, row in process.calls:
            assert row["flags"] == ENQUEUED
            assert 0 < row["start_ns"] == row["enqueued_ns"] < row["end_ns"] < time.monotonic_ns()
        assert process.count("records_refused") == 4
        assert process.count("comms_unknown") == 0


def test_a_program_in_a_tree_of_files_of_its_own(program: Path, named_cgroup: Path, tmp_path: Path) -> None:
    with Process(f"/{NAME}") as process, Caller(program, named_cgroup, tmp_path) as caller:
        process.until_traced(caller)
        assert list(tmp_path.iterdir()) == []
        caller.do("pass", 50)
        process.until(lambda: len(process.queue_pairs) >= 250)
        process.settle(caller)
        assert len(process.queue_pairs) == 250


@pytest.fixture
def layered(program: Path, tmp_path: Path) -> Iterator[Path]:
    """The same program as a container has it whose files are in layers: by another path, of the same files below."""
    folders = {name: tmp_path / name for name in ("upper", "work", "merged")}
    for folder in folders.values():
        folder.mkdir()
    options = f"lowerdir={program.parent},upperdir={folders['upper']},workdir={folders['work']}"
    merged = folders["merged"]
    mounted = subprocess.run(("mount", "-t", "overlay", "-o", options, "overlay", merged), check=False)
    if mounted.returncode:
        pytest.skip("this kernel has no overlayfs")
    yield merged / program.name
    subprocess.run(("umount", "-l", merged), check=True)


def test_a_file_by_two_paths_is_told_once(program: Path, layered: Path, named_cgroup: Path) -> None:
    with (
        Process(f"/{NAME}") as process,
        Caller(program, named_cgroup) as one,
        Caller(layered, named_cgroup) as other,
    ):
        process.until_traced(one)
        for caller in (one, other):
            caller.do("init")
            caller.do("pass", 50)
            caller.do("reduce", 50)
        process.until(lambda: len(process.calls) >= 100)
        process.settle(one)
        connected = Counter(owner.pid for seen, owner in process.queue_pairs if seen.state == RTR)
        assert connected == {one.pid: 50, other.pid: 50}
        assert Counter(comm.pid for comm, _ in process.calls) == connected


def test_threads_that_end_within_a_call_take_no_room(program: Path, named_cgroup: Path) -> None:
    with Process(f"/{NAME}") as process, Caller(program, named_cgroup) as caller:
        process.until_traced(caller)
        caller.do("init")
        caller.do("end", 20_000)
        caller.do("reduce", 100)
        process.until(lambda: len(process.calls) >= 100)
        process.settle(caller)
        assert len(process.calls) == 100


def test_a_communicator_that_was_there_before_is_one_rank_s(program: Path, named_cgroup: Path) -> None:
    with Caller(program, named_cgroup) as caller:
        caller.do("init")
        with Process(f"/{NAME}") as process:
            process.until_traced(caller)
            caller.do("reduce", 3)
            process.until(lambda: len(process.calls) == 3)
            assert {(comm.rank, comm.ranks) for comm, _ in process.calls} == {(-1, 0)}
            assert [int(row["seq"]) for _, row in process.calls] == [0, 1, 2]
            assert process.count("comms_unknown") == 1


def test_programs_of_a_cgroup_of_version_1(program: Path, old_cgroup: Path) -> None:
    with Process(f"/{NAME}") as process, Caller(program, old_cgroup) as named, Caller(program) as other:
        process.until_traced(named)
        named.do("pass", 100)
        other.do("pass", 100)
        process.until(lambda: len(process.queue_pairs) >= 500)
        process.settle(named)
        assert [owner.pid for _, owner in process.queue_pairs] == [named.pid] * 500


def test_a_cgroup_that_comes_later_and_goes(program: Path, mount: Path) -> None:
    with Process(f"/{NAME}") as process:
        process.until(lambda: process.word.trouble == f"no such cgroup: /{NAME}")
        for _ in range(2):
            with cgroup(mount, NAME) as below, Caller(program, below) as caller:
                process.until_traced(caller)
                assert process.word.trouble == ""
            process.until(lambda: process.count("libraries") == 0)
        process.until(lambda: process.word.trouble)


def test_the_probes_end_with_the_process(program: Path, named_cgroup: Path) -> None:
    with Caller(program, named_cgroup) as caller:
        with Process(f"/{NAME}") as process:
            process.until_traced(caller)
        caller.do("pass", 100)
        with Process(f"/{NAME}") as process:
            process.until_traced(caller)


def test_without_headers_it_says_so(program: Path, named_cgroup: Path, tmp_path: Path) -> None:
    with Process(f"/{NAME}", headers=tmp_path) as process, Caller(program, named_cgroup) as caller:
        process.until(lambda: process.word.trouble)
        assert process.word.trouble.startswith(f"no kernel headers in {tmp_path}")
        caller.do("pass")
        process.listen()


def test_headers_that_do_not_compile(program: Path, named_cgroup: Path, tmp_path: Path) -> None:
    (tmp_path / "include/linux").mkdir(parents=True)
    with Process(f"/{NAME}", headers=tmp_path) as process, Caller(program, named_cgroup):
        process.until(lambda: process.word.trouble)
        assert process.word.trouble.startswith("bcc cannot compile the probes")
        process.listen()
