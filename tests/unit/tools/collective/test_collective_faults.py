"""What goes wrong is said, with an exit status, and nobody waits for ever."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from collective_world import Run

from tools.collective import Collective
from tools.shim.build import compile_c

KB = 1024
NEEDED = (
    "--rank",
    "0",
    "--ranks",
    "2",
    "--rendezvous",
    "127.0.0.1:9",
    "--device",
    "fake_0",
    "--gid-index",
    "0",
)
LONG = Collective(bytes=240 * KB, chunk_bytes=4 * KB, iterations=100_000, more=("--timeout-s", "2"))
SOON_S = 20.0


def complaint(run: Run, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [run.world.program, *options], capture_output=True, text=True, check=False, timeout=SOON_S
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "are needed"),
        (("--bogus",), "unrecognized option"),
        (("--bytes",), "requires an argument"),
        ((*NEEDED, "--rank", "2"), "of 2 ranks the last is 1"),
        ((*NEEDED, "--ranks", "1"), "--ranks is 1; it must be from 2 to 32"),
        ((*NEEDED, "--bytes", "12"), "a multiple of 8"),
        ((*NEEDED, "--bytes", "many"), "--bytes is many"),
        ((*NEEDED, "--chunk-bytes", "6"), "a multiple of 4"),
        ((*NEEDED, "--slow", "20"), "--slow is 20; it must be from 0% to 100000%"),
        ((*NEEDED, "--function", "gather"), "all-reduce, all-to-all or send"),
        ((*NEEDED, "--function", "send", "--ranks", "3"), "must be even"),
        ((*NEEDED, "--stall-ms", "2000"), "less than --stall-every-ms"),
        ((*NEEDED, "--rendezvous", "here"), "must be ADDRESS:PORT"),
        ((*NEEDED, "more"), "more is not understood"),
    ],
)
def test_arguments_that_are_wrong(run: Run, options: tuple[str, ...], said: str) -> None:
    status, error = complaint(run, *options)
    assert (status, said in error) == (2, True), error


def test_help_is_no_error(run: Run) -> None:
    done = subprocess.run([run.world.program, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: ")


def ended(
    run: Run,
    what: Collective,
    ranks: int = 2,
    environment: dict[str, str] | None = None,
    device: str = "fake_0",
) -> list[str]:
    """What ranks say that all end with status 1, in time."""
    with run.started(what, ranks, environment, device) as job:
        truths = job.finish(SOON_S)
    assert [truth.status for truth in truths] == [1] * ranks
    return [truth.error for truth in truths]


def test_no_such_device(run: Run) -> None:
    assert all("there is no device fake_9" in error for error in ended(run, LONG, device="fake_9"))


def test_no_plugin(run: Run) -> None:
    errors = ended(run, LONG, environment={"NCCL_PROFILER_PLUGIN": "/nowhere/lib.so"})
    assert all("/nowhere/lib.so: cannot open" in error for error in errors)


def test_a_plugin_of_an_unknown_version(run: Run, tmp_path: Path) -> None:
    source, library = tmp_path / "later.c", tmp_path / "later.so"
    source.write_text("const char *ncclProfiler_v7[] = {0};\n")
    compile_c(library, "-shared", "-fPIC", str(source))
    errors = ended(run, LONG, environment={"NCCL_PROFILER_PLUGIN": str(library)})
    assert all("has none of the versions 1 to 6" in error for error in errors)


def test_a_rank_that_does_not_come(run: Run) -> None:
    status, error = complaint_with(run, 0)
    assert (status, "0 of 1 other ranks came to 127.0.0.1" in error) == (1, True), error
    status, error = complaint_with(run, 1)
    assert (status, "rank 0 is not at 127.0.0.1" in error) == (1, True), error


def complaint_with(run: Run, rank: int) -> tuple[int, str]:
    where = ["--rendezvous", f"127.0.0.1:{run.port}", "--device", "fake_0", "--gid-index", "0"]
    done = subprocess.run(
        [run.world.program, "--rank", str(rank), "--ranks", "2", *where, "--timeout-s", "1"],
        capture_output=True, text=True, check=False, timeout=SOON_S, env={"LD_LIBRARY_PATH": str(run.world.fakes)},
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_peer_that_dies(run: Run) -> None:
    with run.started(LONG, 3) as job:
        time.sleep(0.5)
        job.processes[1].kill()
        truths = job.finish(SOON_S)
    assert [truth.status for truth in truths] == [1, -signal.SIGKILL, 1]
    for truth in (truths[0], truths[2]):
        assert "has gone" in truth.error or "no acknowledgement" in truth.error
        assert truth.chunks


def test_a_peer_that_stops(run: Run) -> None:
    with run.started(LONG) as job:
        time.sleep(0.5)
        job.processes[1].send_signal(signal.SIGSTOP)
        job.processes[0].wait(SOON_S)
        job.processes[1].kill()
        truths = job.finish(SOON_S)
    assert truths[0].status == 1
    assert "nothing has happened for 2 s: waits for" in truths[0].error
    assert "rank 1" in truths[0].error


def test_a_queue_pair_in_error(run: Run) -> None:
    errors = ended(run, LONG, environment={"FAKE_FAILS_AT": "100"})
    assert any("status 12, no acknowledgement" in error for error in errors)
    assert all("error: rank " in error for error in errors)


def pair(run: Run, first: tuple[str, ...], second: tuple[str, ...]) -> list[tuple[int, str]]:
    """How two processes end that have these options."""
    where = [
        "--ranks",
        "2",
        "--rendezvous",
        f"127.0.0.1:{run.port}",
        "--device",
        "fake_0",
        "--gid-index",
        "0",
    ]
    processes = [
        subprocess.Popen(
            [run.world.program, *where, *options, "--timeout-s", "3"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"LD_LIBRARY_PATH": str(run.world.fakes)},
        )
        for options in (first, second)
    ]
    errors = [process.communicate(timeout=SOON_S)[1] for process in processes]
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


def test_ranks_that_were_told_different_things(run: Run) -> None:
    (status, error), (other, _) = pair(run, ("--rank", "0"), ("--rank", "1", "--bytes", "4096"))
    assert (status, other) == (1, 1)
    assert "rank 1 was told to do something else" in error


def test_two_of_one_rank(run: Run) -> None:
    ends = pair(run, ("--rank", "0"), ("--rank", "0"))
    assert [status for status, _ in ends] == [1, 1]
    assert any("cannot listen at 127.0.0.1" in error for _, error in ends)
