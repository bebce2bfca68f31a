"""The agent's side together with the shim itself, in a program over fakes of libibverbs and libmlx5."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import need
import pytest
from asynchronous import asynchronous
from waiting import WAIT_S

from cwdp.agent.config import VerbsConfig
from cwdp.agent.verbs import keeper as keeper_module
from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.agent.verbs.orders import VerbsSource
from cwdp.agent.verbs.owners import Owners
from cwdp.agent.verbs.queuepairs import gid_address
from cwdp.shared.bus.messages import Spread, SteerQp
from tools.shim import Built, Program, build
from tools.shim.program import GID

THERE = gid_address(GID)
SPORTS = [0xC123, 0xC456]
MOVED, BACKUP = 0xD00D, 0xD00E


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    need.installed(Path("/usr/include/infiniband/verbs.h"))
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def program(built: Built, tmp_path: Path) -> Iterator[Program]:
    """A program with the shim, whose agent is to come."""
    environment = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(tmp_path / "verbs.sock")}
    with Program(built.linked, built, environment) as program:
        yield program


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerbsKeeper:
    made = [VerbsSource("nic0", device, 1, 3, "fe80::1") for device in ("mlx5_0", "fake_0")]
    monkeypatch.setattr(keeper_module, "sources", lambda _nics: made)
    monkeypatch.setattr(Owners, "look", lambda _self: asyncio.sleep(0))
    return VerbsKeeper(VerbsConfig(socket=str(tmp_path / "verbs.sock")), ["nic0"], ["nic0"])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is another process's
            await asyncio.sleep(0.01)


def ports_told(program: Program) -> list[int]:
    """The ports that libmlx5 was told."""
    return [call.sport for call in program.calls() if call.what == "udp_sport"]


async def begin(keeper: VerbsKeeper, program: Program, device: str) -> asyncio.Task[None]:
    """The agent runs, and the program has opened a device and has a table."""
    keeper.order([Spread(nic="nic0", dst_addr=THERE, sports=SPORTS)], [])
    running = asyncio.create_task(keeper.run())
    await asyncio.sleep(0.1)
    program.do("load libmlx5.so.1")
    program.do(f"open {device}")
    await until(lambda: keeper.counters["verbs_tables"] > 0 and keeper.ports)
    await asyncio.sleep(0.5)
    return running


async def end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def sports(keeper: VerbsKeeper) -> list[int | None]:
    return [qp.sport for qp in keeper.queue_pairs]


@asynchronous
async def test_a_queue_pair_is_given_a_path_moved_by_document_and_taken_off_a_silent_one(
    keeper: VerbsKeeper, program: Program
) -> None:
    running = await begin(keeper, program, "mlx5_0")
    program.connect()
    await until(lambda: keeper.queue_pairs)
    (qp,) = keeper.queue_pairs
    assert (qp.pid, qp.nic, qp.dst_addr, qp.actuator, qp.by_table) == (
        program.pid,
        "nic0",
        THERE,
        "mlx5dv",
        True,
    )
    assert qp.sport in SPORTS
    program.calls()
    steer = SteerQp(nic="nic0", dst_addr=THERE, qpn=qp.qpn, sport=MOVED, backup_sport=BACKUP)
    keeper.order(keeper.spreads, [steer])
    await until(lambda: sports(keeper) == [MOVED])
    assert ports_told(program) == [MOVED]
    keeper.tell_down("nic0", [(THERE, MOVED)])
    await until(lambda: sports(keeper) == [BACKUP])
    keeper.tell_down("nic0", [])
    await until(lambda: sports(keeper) == [MOVED])
    assert ports_told(program) == [BACKUP, MOVED]
    await end(running)


@asynchronous
async def test_what_its_device_cannot_move_is_spread_as_it_is_connected_and_stays(
    keeper: VerbsKeeper, program: Program
) -> None:
    running = await begin(keeper, program, "fake_0")
    for _ in range(20):
        program.connect()
    await until(lambda: len(keeper.queue_pairs) == 20)
    before = sports(keeper).count(SPORTS[1])
    assert 8 <= before <= 12
    assert set(sports(keeper)) == set(SPORTS)
    keeper.tell_down("nic0", [(THERE, SPORTS[0])])
    await until(keeper.take_path_changes)
    await until(lambda: keeper.counters["verbs_tables"] > 1)
    await asyncio.sleep(0.3)
    for _ in range(6):
        program.connect()
    await until(lambda: len(keeper.queue_pairs) == 26)
    assert sports(keeper).count(SPORTS[1]) == before + 6
    assert keeper.counters["verbs_moves"] == 0
    await end(running)
