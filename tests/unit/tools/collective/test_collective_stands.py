"""A rank that is stopped while its GPU computes: from the programs over the plug-in and the agent's process to what the manager says of it."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collective_world import Run

from cwdp.agent.collectives.process import Reading
from cwdp.agent.programs.listening import listen
from cwdp.nccl import calls
from cwdp.shared.bus.collectives import CollectiveReport
from manager.causes import standing
from manager.causes.standing import standing_causes
from manager.collectives.store import CollectiveStore
from tools.collective import Collective

HOST, STOPPED, RANKS = "h1", 1, 3
SLOW_RANKS = Collective(
    bytes=120 << 10,
    chunk_bytes=8 << 10,
    iterations=100_000,
    more=("--compute-ms", "400", "--timeout-s", "30"),
)
WAIT_S = 30.0


class Fleet:
    """The agent's process of one host, and what a manager hears of it; times are this host's."""

    def __init__(self, listener: socket.socket) -> None:
        self.reading, self.store = Reading(listener), CollectiveStore()

    def turn(self) -> None:
        self.reading.turn()
        word = self.reading.word()
        if word.comms:
            report = CollectiveReport(
                host=HOST, comms=word.comms, calls=word.calls, peers=word.peers, chunks=word.chunks
            )
            self.store.hear(report, [HOST], time.monotonic_ns())

    def until(self, is_so: Callable[[], object]) -> None:
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end
            self.turn()
            time.sleep(0.01)

    def whole(self) -> int:
        """How many calls are over on all ranks."""
        return sum(
            len(call.ranks) == RANKS and all(rank.is_over for rank in call.ranks.values())
            for call in self.store.of()
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nccl.sock"


@pytest.fixture
def fleet(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(calls, "SETTLE_NS", 50_000_000)
    monkeypatch.setattr(calls, "STUCK_NS", 1_000_000_000)
    monkeypatch.setattr(standing, "STANDS_NS", 2_000_000_000)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listen(listener, path)
        made = Fleet(listener)
        yield made
        made.reading.programs.close()


def test_the_rank_that_is_stopped_between_calls_is_named(run: Run, fleet: Fleet, path: Path) -> None:
    with run.started(SLOW_RANKS, RANKS, run.observed(path, SLURM_JOB_ID="9")) as job:
        fleet.until(lambda: fleet.whole() >= 2)
        seen = fleet.whole()
        fleet.until(lambda: fleet.whole() > seen)
        stopped = job.processes[STOPPED]
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            fleet.until(lambda: standing_causes(fleet.store.of(), {}, time.monotonic_ns()))
            ((cause, name, _),) = standing_causes(fleet.store.of(), {}, time.monotonic_ns())
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        assert (cause.kind, name) == ("standstill", "slurm:9")
        assert cause.subject == f"rank {STOPPED} ({HOST}, process {stopped.pid})"
        assert cause.evidence[1].endswith(cause.subject)
        fleet.until(lambda: not standing_causes(fleet.store.of(), {}, time.monotonic_ns()))
        for process in job.processes:
            process.kill()
