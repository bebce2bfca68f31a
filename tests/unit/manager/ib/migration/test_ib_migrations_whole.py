"""A manager, two agents and shimmed programs over the fake provider: a link dies, and both ends are on the alternate path."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import msgspec
import need
import numpy as np
import pytest
from fakes import FakeHost, hello, until

from cwdp.agent.config import AgentConfig, VerbsConfig
from cwdp.agent.verbs import keeper as keeper_module
from cwdp.agent.verbs.hostverbs import HostVerbs
from cwdp.agent.verbs.orders import VerbsQp, VerbsSource
from cwdp.agent.verbs.owners import Owners
from cwdp.shared.bus.messages import Desired, FromAgent, Hello
from cwdp.shared.bus.subjects import down, up
from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.reports import IbGrowth, pack_growth, subnet_pieces
from cwdp.shared.ib.subnet import Subnet
from cwdp.shared.verbs import MigrationOrder
from manager.faults.finding import Finding, Findings
from manager.ib.migration.attempts import ORDER_S, Attempt
from manager.ib.migration.migrations import IbMigrations
from manager.service import Manager
from tests.unit.manager.ib.ib_worlds import clos, port
from tests.unit.manager.ib.migration.migrating import down as without
from tests.unit.manager.one_manager import config_of, running
from tools.free_ports import free_port
from tools.shim import Built, Program, build
from tools.shim.program import INIT, RTR, RTS

pytestmark = pytest.mark.needs("nats-server")

SUBNET = clos()
DEVICE, NIC = "ib_0", "ib_0"
ENDS = ("h0", "h5")
TELLS_S = 2.0
REARMED, SILENT = 1, 0
PATH_MIG_STATE = 1 << 18
HERE: ContextVar[str] = ContextVar("HERE")


def row_of(host: str) -> int:
    return port(SUBNET, f"{host} mlx5_0", 1)


def lid_of(host: str) -> int:
    return int(SUBNET.ports["lid"][row_of(host)])


def sources_here() -> list[VerbsSource]:
    host = HERE.get()
    return [VerbsSource(NIC, DEVICE, 1, 0, SUBNET.gid(row_of(host)), lid_of(host), 2)]


class Unseen:
    """Uprobes that see nothing."""

    def __init__(self) -> None:
        self.queue_pairs: list[VerbsQp] = []
        self.on_change: Callable[[], None] = lambda: None


class Agent(FakeHost):
    """The part of an agent that serves programs, on a bus; the first host's reads the subnet."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        super().__init__(name, url, offset_ns=0, drift=0.0)
        self.socket = folder / f"{name}.sock"
        self.url = url
        self.subnet, self.number = SUBNET, 1
        config = AgentConfig(host=name, nics=[], verbs=VerbsConfig(socket=str(self.socket), lids=True))
        self.verbs = HostVerbs(self, config, [], Unseen())
        self._jobs: list[asyncio.Task[None]] = []

    def hear(self, kind: str, of: type[MigrationOrder], handler: Callable[[MigrationOrder], None]) -> None:
        self.bus.subscribe(down(self.pod, self.name, kind), of, handler)

    def say(self, kind: str, message: FromAgent) -> bool:
        said = msgspec.structs.replace(message, boot_id="boot")
        return self.bus.publish(up(self.pod, self.name, kind), said)

    def start(self) -> None:
        super().start()
        HERE.set(self.name)
        self._jobs = [asyncio.create_task(job) for job in (*self.verbs.jobs(), self._tell())]
        if self.name == ENDS[0]:
            self._jobs.append(asyncio.create_task(self._read()))

    async def stop(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await super().stop()

    def hello(self) -> Hello:
        version = self.desired.version if self.desired else 0
        said = hello(self.name, nics=0, desired_version=version)
        return msgspec.structs.replace(said, reads_changes=True, ib_ports=self.verbs.ib_ports, verbs=True)

    def _on_desired(self, desired: Desired) -> None:
        super()._on_desired(desired)
        self.verbs.want(desired)

    async def _tell(self) -> None:
        while True:
            self.verbs.tell(self.say)
            await asyncio.sleep(TELLS_S)

    async def _read(self) -> None:
        while True:
            for piece in subnet_pieces(self.name, self.number, self.subnet):
                self.say("ib-subnet", piece)
            per_s = np.zeros((len(self.subnet.ports), len(NAMES)))
            data = pack_growth(Growth(per_s, np.zeros(per_s.shape, bool)))
            growth = IbGrowth(host=self.name, number=self.number, ports=len(per_s), data=data)
            self.say("ib-growth", growth)
            await asyncio.sleep(0.5)

    def read(self, subnet: Subnet) -> None:
        """The reader finds this from now on."""
        self.subnet, self.number = subnet, self.number + 1


class Pair:
    """Two programs, one at each host, and their queue pairs by place."""

    def __init__(self, built: Built, agents: list[Agent], stack: ExitStack) -> None:
        self.programs = [
            stack.enter_context(
                Program(
                    built.linked,
                    built,
                    {
                        "LD_PRELOAD": str(built.shim),
                        "CWDP_VERBS": str(agent.socket),
                        "FAKE_LID": str(lid_of(agent.name)),
                        "FAKE_LMC": "2",
                        "FAKE_APM": "1",
                    },
                )
            )
            for agent in agents
        ]
        self.places: list[tuple[int, int]] = []
        self.qpns: list[tuple[int, int]] = []
        for program in self.programs:
            program.do(f"open {DEVICE}")
            program.do(f"far-ends {REARMED}")

    def connect(self) -> None:
        """One more connection."""
        made = [program.do("create 0 rc") for program in self.programs]
        self.places.append((made[0][0], made[1][0]))
        self.qpns.append((made[0][1], made[1][1]))
        for end, program in enumerate(self.programs):
            far = lid_of(ENDS[1 - end])
            gid = "fe80" + 26 * "0" + "09"
            program.do(f"modify {made[end][0]} {INIT}")
            program.do(f"modify {made[end][0]} {RTR} path={gid} dlid={far} to={made[1 - end][1]} local=1")
            program.do(f"modify {made[end][0]} {RTS}")

    def pass_packets(self) -> None:
        """What both ends have loaded is armed by packets: the fake devices see that when they are asked."""
        for places in self.places:
            for program, place in zip(self.programs, places, strict=True):
                program.do(f"query {place}")

    def die(self) -> None:
        """Nothing comes any more."""
        for program in self.programs:
            program.do(f"far-ends {SILENT}")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    need.installed(Path("/usr/include/infiniband/verbs.h"))
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host has its InfiniBand port, and its kernel no list of queue pairs."""
    monkeypatch.setattr(keeper_module, "sources", lambda _nics: [])
    monkeypatch.setattr(keeper_module, "lid_sources", sources_here)
    monkeypatch.setattr(Owners, "look", lambda _self: asyncio.sleep(0))


def numbers(agents: list[Agent]) -> set[tuple[int, ...]]:
    """Of the paths that both ends of each connection take, as agents know it."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for end, agent in enumerate(agents):
        assert agent.verbs.keeper is not None
        for qp in agent.verbs.keeper.queue_pairs:
            ends = (qp.lqpn, qp.qpn) if end == 0 else (qp.qpn, qp.lqpn)
            found.setdefault(ends, {})[end] = (qp.sport or 0) - lid_of(ENDS[1 - end])
    return {tuple(each[end] for end in sorted(each)) for each in found.values()}


def outcomes(manager: Manager, name: str) -> int:
    return manager.state.migrations.outcomes[name]


class Took(NamedTuple):
    """Seconds until both ends of all connections have answered, since the link was named and since the reader knew of it."""

    since_named_s: float
    since_read_s: float


async def let_die(tmp_path: Path, built: Built, count: int) -> Took:
    """Let the link of the path of so many connections die."""
    config = config_of(tmp_path, free_port())
    agents = [Agent(name, f"nats://{config.bus_listen}", tmp_path) for name in ENDS]
    named: list[float] = []
    ended: list[float] = []
    with pytest.MonkeyPatch.context() as patch, ExitStack() as programs:
        opens = Findings.open

        def opened(self: Findings, finding: Finding) -> Finding:
            if finding.kind == "dead":
                named.append(time.monotonic())
            return opens(self, finding)

        ends = IbMigrations._end

        def end(self: IbMigrations, attempt: Attempt, now_s: float) -> None:
            ended.append(time.monotonic())
            ends(self, attempt, now_s)

        patch.setattr(Findings, "open", opened)
        patch.setattr(IbMigrations, "_end", end)
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(running(config))
            for agent in agents:
                agent.start()
                stack.push_async_callback(agent.stop)
            await until(
                lambda: all(agent.socket.exists() and agent.verbs.ib_ports for agent in agents), timeout_s=30
            )
            pair = await asyncio.to_thread(Pair, built, agents, programs)
            for _ in range(count):
                await asyncio.to_thread(pair.connect)
            await until(lambda: outcomes(manager, "loaded") == count, timeout_s=60)
            assert numbers(agents) == {(0, 0)}
            await asyncio.to_thread(pair.pass_packets)
            for program in pair.programs:
                program.calls()
            await asyncio.to_thread(pair.die)
            told_s = time.monotonic()
            row = port(SUBNET, "l0", 5 + lid_of("h5") % 4)
            agents[0].read(without(SUBNET, row, int(SUBNET.ports["peer"][row])))
            await until(lambda: outcomes(manager, "fault") == count, timeout_s=30)
            done_s = ended[2 * count - 1]
            assert all(one == other != 0 for one, other in numbers(agents))
            await until(lambda: any(e.kind == "qp_migrated" for e in manager.state.events), timeout_s=10)
            for program in pair.programs:
                masks = [call.mask for call in program.calls() if call.what == "modify_qp"]
                assert masks[:count] == [PATH_MIG_STATE] * count
            return Took(done_s - named[0], done_s - told_s)


@pytest.mark.usefixtures("found")
def test_a_link_that_dies_has_both_ends_of_each_connection_go_over(tmp_path: Path, built: Built) -> None:
    took = asyncio.run(asyncio.wait_for(let_die(tmp_path, built, 8), 120))
    assert took.since_named_s < ORDER_S
