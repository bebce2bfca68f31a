"""Two agents with one name: one of them is heard, both are named, and nothing is rebuilt at every hello."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, connect_as, credential_of
from fakes import hello, nic, until
from msgspec import Struct
from msgspec.structs import replace
from one_manager import config_of, running
from test_manager_service import _get

from cwdp.shared.bursts import BurstReport, NicBursts
from cwdp.shared.bus.audits import AuditReport, FlowReport
from cwdp.shared.bus.collectives import CollectiveReport
from cwdp.shared.bus.messages import (
    BounceReport,
    Event,
    FromAgent,
    Hello,
    NicQueuePairs,
    NicSamples,
    QpReport,
    Report,
    SampleReport,
    SteerReport,
    Trace,
    TraceReport,
    WindowReport,
    encode,
)
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.subjects import up
from cwdp.shared.connections import TcpReport
from cwdp.shared.ib.reports import IbGrowth, IbSubnet, IbTables
from cwdp.shared.verbs import MigrationReport, VerbsReport
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.discovery import Discovery
from manager.faults.watch import FaultWatch
from manager.ib.migration.migrations import IbMigrations
from manager.probing.graph_timer import GraphTimer
from manager.queue_pairs.traffic import Traffic
from manager.service import Manager
from manager.state import FleetState
from tools.free_ports import free_port


def _state() -> FleetState:
    return FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)


def _agent(number: int, boot_id: str = "") -> Hello:
    mine = replace(nic(ipv4=f"10.0.0.{number}", ipv6=None), mac=f"02:00:00:00:00:{number:02x}")
    return replace(hello("twin", boot_id=boot_id or f"boot{number}"), nics=[mine])


def _told(state: FleetState) -> list[str]:
    return [event.detail for event in state.events if event.kind == "name_taken"]


@pytest.mark.parametrize("seed", range(5))
def test_the_second_of_two_agents_with_one_name_is_refused(seed: int) -> None:
    rng, state, timer = np.random.default_rng(seed), _state(), GraphTimer()
    state.hear_hello(hello("other"), 0.0)
    versions, built = [], 0
    for tick in range(400):
        now_s = tick / 10
        if tick % 10 == 0:
            state.hear_hello(hello("other"), now_s)
            state.hear_hello(_agent(1), now_s)
        if tick >= 50 and tick % 10 == int(rng.integers(10)):
            state.hear_hello(_agent(2), now_s)
        built += timer.due(state.probeable(now_s), now_s, taken_up=False)
        versions.append(state.members.version)
    assert state.members.hosts["twin"].hello == _agent(1)
    assert len(set(versions[100:])) == 1
    assert built <= 3
    (told,) = _told(state)
    for number in (1, 2):
        assert f"10.0.0.{number}" in told
        assert f"02:00:00:00:00:0{number}" in told
    assert state.hellos["name_taken"] > 10


def test_a_second_agent_that_begins_anew_again_and_again_is_refused_all_the_same() -> None:
    state = _state()
    for second in range(40):
        state.hear_hello(_agent(1), float(second))
        if second > 5:
            state.hear_hello(_agent(2, f"boot2-{second // 3}"), second + 0.5)
    assert state.members.hosts["twin"].hello == _agent(1)
    assert state.members.hosts["twin"].restarts <= 4
    assert len(_told(state)) == 1


@pytest.mark.parametrize("down_s", [0.2, 2.0, 30.0])
def test_an_agent_that_begins_anew_is_heard_at_once(down_s: float) -> None:
    state, now_s = _state(), 0.0
    for start in range(5):
        for _ in range(10):
            now_s += 1.0
            state.hear_hello(_agent(1, f"start{start}"), now_s)
            assert state.members.hosts["twin"].hello.boot_id == f"start{start}"
        now_s += down_s - 1.0
    assert _told(state) == []
    assert state.members.hosts["twin"].restarts == 4


def test_the_second_is_heard_once_the_first_is_gone() -> None:
    state = _state()
    for second in range(20):
        if second < 10:
            state.hear_hello(_agent(1), float(second))
        state.hear_hello(_agent(2), second + 0.5)
    assert state.members.hosts["twin"].hello == _agent(2)


SAID = {
    "report": Report(host="twin", boot_id="", seq=1, local_ns=1, counters={}, clock=None),
    "qp": QpReport(host="twin", local_ns=1, nics=[NicQueuePairs(nic="eth0", rows=b"")]),
    "steer": SteerReport(host="twin", managed=[], by_hand=[]),
    "sample": SampleReport(host="twin", nics=[NicSamples(nic="eth0", rows=b"")]),
    "burst": BurstReport(host="twin", nics=[NicBursts(nic="eth0", rows=b"")]),
    "window": WindowReport(host="twin", nics=["eth0"], table=0, rows=b""),
    "trace": TraceReport(
        host="twin",
        traces=[Trace(nic="eth0", dst_addr="10.0.0.9", sport=50_000, hops=[], reached=False, local_ns=1)],
    ),
    "bounced": BounceReport(host="twin", nic="eth0", number=1, target="10.0.0.9", sent=9, lost=9),
    "event": Event(host="twin", local_ns=1, kind="incast_started", nic="eth0", detail=""),
    "verbs": VerbsReport(host="twin", nics=[]),
    "migrated": MigrationReport(host="twin", answers=[]),
    "tcp": TcpReport(host="twin", at_ns=1, nics=[], services=[]),
    "collective": CollectiveReport(host="twin", comms=[], calls=b"", peers=b"", chunks=b""),
    "audit": AuditReport(host="twin", number=1, taken_s=1.0, facts=b""),
    "audit-flows": FlowReport(host="twin", number=1, flows=[]),
    "ib-subnet": IbSubnet(host="twin", number=1, data=b""),
    "ib-tables": IbTables(host="twin", after=1, number=2, data=b""),
    "ib-growth": IbGrowth(host="twin"),
}


def _seen(manager: Manager, heard: list[FromAgent], kind: str) -> object:
    """What changes when a message of a kind is taken in."""
    state = manager.state
    seen: dict[str, Callable[[], object]] = {
        "report": lambda: state.reports["ok"],
        "qp": state.traffic.reports.total,
        "steer": lambda: state.planner.knows(["twin"]),
        "sample": state.traffic.reports.total,
        "burst": state.traffic.reports.total,
        "window": state.watch.reports.total,
        "trace": lambda: len(heard),
        "bounced": lambda: len(heard),
        "verbs": lambda: len(heard),
        "migrated": lambda: len(heard),
        "tcp": lambda: len(heard),
        "collective": lambda: state.collectives.reports["ok"],
        "audit": manager.audits.counters.total,
        "audit-flows": manager.audits.counters.total,
        **dict.fromkeys(("ib-subnet", "ib-tables", "ib-growth"), state.subnets.results.total),
        "event": lambda: [event.kind for event in state.events].count("incast_started"),
    }
    return seen[kind]() if kind in seen else None


def _recorded(patch: pytest.MonkeyPatch, of: type, name: str, at: int) -> list[object]:
    """What a method is called with in a place, from now on."""
    said, method = list[object](), getattr(of, name)

    def recording(self: object, *args: object) -> object:
        said.append(args[at])
        return method(self, *args)

    patch.setattr(of, name, recording)
    return said


@pytest.mark.needs("nats-server")
@asynchronous
async def test_nothing_that_the_second_says_is_taken_for_the_firsts(tmp_path: Path) -> None:
    """Whatever the kind of message. An older agent does not tell which one it is: it is heard."""
    assert {type(message) for message in SAID.values()} == set(FromAgent.__subclasses__())
    port, heard = free_port(), list[FromAgent]()
    with pytest.MonkeyPatch.context() as patch:
        for of, name in ((FaultWatch, "hear_echo_report"), (Discovery, "hear")):
            patch.setattr(of, name, lambda _self, report: heard.append(report))
        for of, name in ((Traffic, "hear_tcp"), (Traffic, "hear_verbs"), (IbMigrations, "hear")):
            patch.setattr(of, name, lambda _self, report, _now_s: heard.append(report))
        arrived = [_recorded(patch, FleetState, name, at) for name, at in (("hears", 1), ("hear_hello", 0))]
        async with running(config_of(tmp_path, port)) as manager:
            await until(lambda: manager.bus.connected)
            agents = await connect_as(f"nats://127.0.0.1:{port}", credential_of("twin"))

            async def say(kind: str, message: Struct, boot_id: str | None) -> bool:
                """Whether it was taken in."""
                before, count = _seen(manager, heard, kind), sum(map(len, arrived))
                said = msgspec.msgpack.decode(encode(message))
                said |= {} if boot_id is None else {"boot_id": boot_id}
                await agents.publish(up(POD, "twin", kind), packed(msgspec.msgpack.encode(said)))
                await until(lambda: sum(map(len, arrived)) == count + 1)
                return _seen(manager, heard, kind) != before

            for number in (1, 2, 1):
                await say("hello", _agent(number), f"boot{number}")
            for kind, message in SAID.items():
                assert not await say(kind, message, "boot2"), kind
                assert await say(kind, message, "boot1"), kind
                assert not await say(kind, message, "boot3"), kind
                assert kind == "steer" or await say(kind, message, None), kind
            await agents.close()
            _, metrics = await _get(str(tmp_path / "sock"), "/metrics")
            for kind in SAID:
                assert f'cwdp_manager_messages_refused_total{{kind="{kind}"}} 2.0' in metrics
