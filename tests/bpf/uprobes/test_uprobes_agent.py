"""The agent's side of uprobes with the real process: queue pairs of a program without the shim, and no harm where headers are missing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from agent_fakes import NoteOrders
from waiting import until

from cwdp.agent.config import AgentConfig, UprobesConfig
from cwdp.agent.uprobes import keeper as module
from cwdp.agent.uprobes.keeper import HostUprobes
from cwdp.agent.uprobes.requirements import SOURCE
from cwdp.agent.verbs.hostverbs import HostVerbs
from cwdp.agent.verbs.orders import VerbsSource
from cwdp.agent.verbs.owners import Owners
from cwdp.errors import RdmaError
from cwdp.rdma.netlink import QueuePair
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import VERBS_ROW, shown_address
from tools.uprobes import HEADERS, Caller, cgroup, unified

pytestmark = pytest.mark.kernel

NAME = "cwdp-test-uprobes-agent"
CONFIG = AgentConfig(nics=["eth1"], host="h1", uprobes=UprobesConfig(cgroups=[f"/{NAME}"]))


def no_list() -> list[QueuePair]:
    raise RdmaError("this kernel has no RDMA")


@pytest.fixture
def caller(program: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    monkeypatch.setattr(module, "Owners", lambda: Owners(no_list))
    source = VerbsSource("eth1", "fake0", 2, 3, "::ffff:10.77.1.1")
    monkeypatch.setattr(module, "sources", lambda _nics: [source])
    with (
        unified() as mount,
        cgroup(mount, NAME) as below,
        Caller(program, below, TORCHELASTIC_RUN_ID="llama") as made,
    ):
        yield made


def run_until(uprobes: HostUprobes, is_so: Callable[[], object]) -> None:
    """Run the agent's part until something is so; nothing is left of it."""

    async def running() -> None:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(job) for job in uprobes.jobs()]
            try:
                await asyncio.to_thread(until, is_so)
            finally:
                for task in started:
                    task.cancel()

    with suppress(asyncio.CancelledError):
        asyncio.run(running())
    assert not uprobes.is_running


def test_queue_pairs_of_a_program_that_has_nothing_of_ours(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOURCE, str(HEADERS))
    uprobes = HostUprobes(CONFIG)
    verbs = HostVerbs(NoteOrders(), CONFIG, [], uprobes)
    calls: list[int] = []

    def all_told() -> bool:
        if not uprobes.queue_pairs:
            caller.do("keep", 1)
            caller.do("init", 1)
            return False
        if not calls:
            caller.do("reduce", 5)
        calls.extend(len(word.calls) for word in uprobes.take_calls())
        return bool(calls)

    run_until(uprobes, all_told)
    (report,) = verbs.reports()
    rows = rows_of(report.nics[0].rows, VERBS_ROW)
    assert set(rows["pid"].tolist()) == {caller.pid}
    assert {shown_address(bytes(addr)) for addr in rows["addr"]} == {"10.77.2.1"}
    assert [(one.pid, one.name, one.cgroup, one.job) for one in report.programs] == [
        (caller.pid, "caller", f"/{NAME}/below", "torchrun:llama")
    ]
    assert uprobes.counters["uprobes_attached"] >= 2


def test_without_headers_the_agent_says_so_and_goes_on(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SOURCE, str(tmp_path))
    uprobes = HostUprobes(CONFIG)
    run_until(uprobes, lambda: "not all programs are traced" in caplog.text)
    assert f"no kernel headers in {tmp_path}" in caplog.text
    assert uprobes.counters["uprobes_restarts"] == 0
    caller.do("pass")
    assert uprobes.queue_pairs == []
