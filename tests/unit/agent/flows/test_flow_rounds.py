"""Orders of flows: what is refused, what is answered once more, what the flow program is given and may say."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent_fakes import address, link

from cwdp.agent.config import AgentConfig, FlowsConfig
from cwdp.agent.flows import runner
from cwdp.agent.flows.programs import ProgramError
from cwdp.agent.flows.protocol import ProgramOrder, ProgramTold
from cwdp.agent.flows.runner import BUSY, Command, FlowProgram, Flows
from cwdp.agent.links import LinkTable
from cwdp.errors import RdmaError
from cwdp.shared.bus.audits import Flow, FlowOrder, FlowReport, FlowTold

PEER = "10.2.0.1"
NOW = {"begin_s": 0.0, "lasts_s": 0.1}


def flow(number: int = 1, **other: Any) -> Flow:
    return Flow(**({"id": number, "nic": "nic0", "peer_addr": PEER, "sends": True, "sport": 50_000} | other))


def order(*flows: Flow, number: int = 7, **other: Any) -> FlowOrder:
    return FlowOrder(host="h1", number=number, flows=list(flows), **(NOW | other))


class Bus:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[FlowReport] = []
        self.order: Any = None
        self.news = asyncio.Event()

    def hear(self, kind: str, _of: type, handler: Any) -> None:
        assert kind == "audit-flows"
        self.order = handler

    def say(self, kind: str, message: FlowReport) -> None:
        assert kind == "audit-flows"
        self.said.append(message)
        self.news.set()


class Program:
    """A flow program that carries a byte for each flow, or what it is told to."""

    def __init__(self, *told: ProgramTold, lasts_s: float = 0.0, error: str = "") -> None:
        self.orders: list[ProgramOrder] = []
        self._told, self._lasts_s, self._error = told, lasts_s, error

    async def run(self, asked: ProgramOrder) -> Sequence[ProgramTold]:
        self.orders.append(asked)
        await asyncio.sleep(self._lasts_s)
        if self._error:
            raise ProgramError(self._error)
        return self._told or [ProgramTold(id=one.id, carried_bytes=1, took_s=1.0) for one in asked.flows]


class Steering:
    """Keeps what is held, and what was."""

    def __init__(self) -> None:
        self.held: dict[str, set[str]] = {}
        self.were: list[tuple[str, set[str]]] = []

    def hold(self, ifname: str, peers: set[str]) -> None:
        self.held[ifname] = peers
        self.were.append((ifname, peers))

    def release(self, ifname: str) -> None:
        del self.held[ifname]


class Caps:
    """Keeps what is held, and what was; `refuses` is why nothing can be."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.were: list[tuple[str, set[str], int]] = []
        self.refuses: Exception | None = None

    def hold(self, nic: str, peers: set[str], cap_bps: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.held.add(nic)
        self.were.append((nic, peers, cap_bps))

    def let_go(self, nic: str) -> None:
        self.held.discard(nic)


class Setup:
    """A host with `nic0`, which has an IPv4 address, and `nic1`, which has no carrier."""

    def __init__(self, program: FlowProgram | None, **config: Any) -> None:
        self.bus = Bus()
        links = LinkTable(lambda _name: None)
        for message in (
            link("nic0"),
            address("10.1.0.1"),
            link("nic1", 3, up=False),
            address("10.1.0.9", 3),
        ):
            links.take(message)
        settings = AgentConfig(nics=["nic0", "nic1", "nic2"], host="h1", **config)
        self.steering, self.caps = Steering(), Caps()
        self.flows = Flows(settings, self.bus, links, program, steering=self.steering, caps=self.caps)  # type: ignore[arg-type]
        self.looked: list[str] = []
        self.busy: dict[str, bool | Exception] = {}
        self.flows._traffic.sends = self._sends  # type: ignore[method-assign]

    async def _sends(self, ifname: str) -> bool:
        self.looked.append(ifname)
        found = self.busy.get(ifname, False)
        if isinstance(found, Exception):
            raise found
        return found

    def answers(self, *orders: FlowOrder, apart_s: float = 0.0, reports: int = 1) -> list[FlowReport]:
        """What is said to orders that come one after another."""

        async def until_said() -> None:
            task = asyncio.create_task(self.flows.run())
            for one in orders:
                self.bus.order(one)
                await asyncio.sleep(apart_s)
            async with asyncio.timeout(20.0):
                while len(self.bus.said) < reports:
                    await self.bus.news.wait()
                    self.bus.news.clear()
            assert not task.done()
            task.cancel()

        asyncio.run(until_said())
        return self.bus.said

    def told(self, one: FlowOrder) -> list[FlowTold]:
        [report] = self.answers(one)
        assert (report.host, report.number) == ("h1", one.number)
        return report.flows


def test_the_program_is_given_what_was_ordered() -> None:
    program = Program()
    began_ns = time.monotonic_ns()
    told = Setup(program).told(
        order(flow(), flow(2, sends=False, sport=50_001), begin_s=2.0, lasts_s=3.0, cap_bps=9)
    )
    [asked] = program.orders
    assert (asked.number, asked.lasts_s, asked.cap_bps) == (7, 3.0, 9)
    assert 1.5 < asked.begin_s <= 2.0
    assert 0 <= asked.begin_at_ns - began_ns - 2_000_000_000 < 500_000_000
    assert [msgspec.structs.asdict(one) for one in asked.flows] == [
        {"local_addr": "10.1.0.1", "nic": "nic0", "peer_addr": PEER, **rest}
        for rest in (
            {"id": 1, "sends": True, "sport": 50_000},
            {"id": 2, "sends": False, "sport": 50_001},
        )
    ]
    assert told == [FlowTold(id=1, carried_bytes=1, took_s=1.0)]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (flow(nic="eth9"), "eth9 is none of the agent's NICs"),
        (flow(nic="nic1"), "nic1 has no carrier"),
        (flow(nic="nic2"), "there is no interface nic2"),
        (flow(peer_addr="fd00::2"), "nic0 has no IPv6 address"),
        (flow(peer_addr="h2"), "'h2' is no address"),
        (flow(peer_addr="224.0.0.1"), "224.0.0.1 is no address of a host in the fabric"),
        (flow(peer_addr="127.0.0.1"), "127.0.0.1 is no address of a host in the fabric"),
        (flow(peer_addr="::ffff:0.0.0.0"), "0.0.0.0 is no address of a host in the fabric"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_flow_that_cannot_be_is_told_and_the_others_run(asked: Flow, why: str) -> None:
    program = Program()
    told = Setup(program).told(order(asked, flow(2)))
    assert told == [FlowTold(id=1, trouble=why), FlowTold(id=2, carried_bytes=1, took_s=1.0)]
    assert [one.id for one in program.orders[0].flows] == [2]


def test_two_flows_with_one_number_are_none() -> None:
    setup = Setup(Program())
    assert setup.told(order(flow(), flow(sport=50_001))) == [
        FlowTold(id=1, trouble="two flows have this number")
    ]
    assert setup.flows.counters == {"flow_rounds_made": 1, "flow_rounds_refused": 0, "flows_refused": 1}


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (Setup(Program(), observe_only=True), "the agent of this host only observes"),
        (Setup(None), "the agent's configuration allows no flow program"),
    ],
    ids=["observes", "none"],
)
def test_an_agent_that_may_not_send_says_so_of_both_directions(setup: Setup, why: str) -> None:
    assert setup.told(order(flow(), flow(2, sends=False))) == [
        FlowTold(id=number, trouble=why) for number in (1, 2)
    ]


def test_a_nic_on_which_queue_pairs_send_neither_sends_nor_receives() -> None:
    setup = Setup(Program())
    setup.busy["nic0"] = True
    assert setup.told(order(flow(), flow(2, sends=False))) == [
        FlowTold(id=number, trouble="queue pairs send on nic0") for number in (1, 2)
    ]
    assert setup.looked == ["nic0"]


@pytest.mark.parametrize(
    ("error", "why"),
    [(OSError(2, "No such file or directory"), "No such file"), (RdmaError("no device"), "no device")],
    ids=["os", "rdma"],
)
def test_a_nic_of_which_that_cannot_be_told_is_left_alone(error: Exception, why: str) -> None:
    setup = Setup(Program())
    setup.busy["nic0"] = error
    [told] = setup.told(order(flow()))
    assert told.trouble.startswith("whether queue pairs send on nic0 cannot be told")
    assert why in told.trouble


def test_what_is_forced_does_not_look() -> None:
    setup = Setup(Program())
    setup.busy["nic0"] = True
    [told] = setup.told(order(flow(), force=True))
    assert (told.carried_bytes, setup.looked) == (1, [])


def test_an_order_that_comes_again_begins_nothing_and_is_answered_again() -> None:
    program = Program(lasts_s=0.2)
    setup = Setup(program)
    said = setup.answers(*[order(flow())] * 5, apart_s=0.1, reports=3)
    assert len(program.orders) == 1
    assert len(said) >= 2
    assert all(report == said[0] for report in said)


def test_the_next_round_of_a_number_that_was_another_managers_is_made() -> None:
    program = Program()
    setup = Setup(program)
    setup.answers(order(flow()), order(flow(sport=50_001)), apart_s=0.1, reports=2)
    assert len(program.orders) == 2


def test_a_round_while_another_is_under_way_is_refused() -> None:
    setup = Setup(Program(lasts_s=0.3))
    refused, made = setup.answers(order(flow()), order(flow(3), number=8), apart_s=0.05, reports=2)
    assert (refused.number, refused.flows) == (8, [FlowTold(id=3, trouble=BUSY)])
    assert (made.number, made.flows[0].trouble) == (7, "")
    assert setup.flows.counters["flow_rounds_refused"] == 1


def test_a_program_that_fails_is_told_for_each_flow() -> None:
    told = Setup(Program(error="it broke\nwith two lines " + 300 * "x")).told(
        order(flow(), flow(2, sends=False))
    )
    assert [one.id for one in told] == [1, 2]
    assert all(one.trouble.startswith("it broke with two lines xxx") for one in told)
    assert all(len(one.trouble) == 200 for one in told)


@pytest.mark.parametrize("error", ["", "it broke"], ids=["made", "failed"])
def test_the_planner_leaves_the_flows_alone_until_they_are_over(error: str) -> None:
    setup = Setup(Program(error=error))
    setup.told(order(flow(), flow(2, peer_addr="10.2.0.2", sends=False)))
    assert setup.steering.were == [("nic0", {PEER, "10.2.0.2"})]
    assert setup.steering.held == {}


def test_what_a_program_says_of_others_or_not_at_all() -> None:
    program = Program(
        ProgramTold(id=9, carried_bytes=5, took_s=1.0),
        ProgramTold(id=2, carried_bytes=5, took_s=1.0),
        ProgramTold(id=3, trouble="no device"),
    )
    told = Setup(program).told(order(flow(), flow(2, sends=False), flow(3, sends=False)))
    assert told == [
        FlowTold(id=1, trouble="the flow program said nothing of it"),
        FlowTold(id=3, trouble="no device"),
    ]


def command(tmp_path: Path, body: str) -> Command:
    script = tmp_path / "program.py"
    script.write_text(f"import json, sys, time\nasked = json.load(sys.stdin)\n{body}\n")
    return Command([sys.executable, "-S", str(script)])


def test_a_command_hears_json_and_says_json(tmp_path: Path) -> None:
    body = (
        "flows = [{'id': one['id'], 'carried_bytes': one['sport'], 'took_s': asked['lasts_s'], 'more': 1}"
        " for one in asked['flows'] if one['sends']]\nprint(json.dumps({'flows': flows}))"
    )
    assert Setup(command(tmp_path, body)).told(order(flow())) == [
        FlowTold(id=1, carried_bytes=50_000, took_s=0.1)
    ]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("nonsense", "gave no answer that can be read"),
        ('{"flows": [{"id": 1, "carried_bytes": -1}]}', ">= 0"),
        ('{"flows": [{"id": 1, "took_s": 1e999}]}', "gave no answer that can be read"),
        ('{"flows": {}}', "Expected `array`"),
        ("", "gave no answer that can be read"),
    ],
    ids=["no json", "negative", "infinite", "kind", "nothing"],
)
def test_garbage_is_a_trouble(tmp_path: Path, said: str, why: str) -> None:
    [told] = Setup(command(tmp_path, f"print({said!r})")).told(order(flow()))
    assert why in told.trouble
    assert "\n" not in told.trouble


def test_ten_megabytes_are_a_trouble(tmp_path: Path) -> None:
    [told] = Setup(command(tmp_path, "print('x' * 10_000_000)")).told(order(flow()))
    assert "more than 1048576 bytes" in told.trouble


def test_a_command_that_hangs_is_killed_when_its_flows_are_long_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "END_S", 0.3)
    [told] = Setup(command(tmp_path, "time.sleep(1000)")).told(order(flow()))
    assert "was killed" in told.trouble


def test_the_configuration_takes_a_word_or_a_command() -> None:
    def read(program: object) -> FlowsConfig:
        return msgspec.json.decode(json.dumps({"program": program}), type=FlowsConfig)

    assert read("none").program == "none"
    assert read(["/opt/send", "-x"]).program == ["/opt/send", "-x"]
    for wrong in ("iperf", [], 3):
        with pytest.raises(msgspec.ValidationError):
            read(wrong)


def test_a_cap_is_held_while_flows_are_sent() -> None:
    setup = Setup(Program())
    received = flow(2, sends=False)
    [report] = setup.answers(order(flow(1), received, cap_bps=10**9))
    assert [one.trouble for one in report.flows] == [""]
    assert setup.caps.were == [("nic0", {PEER}, 10**9)]
    assert setup.caps.held == set()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ProgramError("nic0 has slices of its own"), "nic0 has slices of its own"),
        (RdmaError("no such thing", "look"), "no cap can be held on nic0: no such thing"),
    ],
)
def test_where_no_cap_can_be_held_nothing_is_sent(error: Exception, why: str) -> None:
    program = Program()
    setup = Setup(program)
    setup.caps.refuses = error
    [report] = setup.answers(order(flow(1), cap_bps=10**9))
    assert report.flows == [FlowTold(id=1, trouble=why)]
    assert program.orders == []


def test_without_a_cap_nothing_is_held() -> None:
    setup = Setup(Program())
    setup.answers(order(flow(1)))
    assert setup.caps.were == []
