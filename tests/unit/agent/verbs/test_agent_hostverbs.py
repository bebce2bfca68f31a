"""What the agent makes of documents and of programs' queue pairs: spreads, paths to watch, reports, events."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import NoteOrders

from cwdp.agent.config import AgentConfig, InterfaceConfig, VerbsConfig
from cwdp.agent.ud.orders import UdWatched, WatchPace
from cwdp.agent.verbs import keeper as keeper_module
from cwdp.agent.verbs.hostverbs import HostVerbs, with_probed
from cwdp.agent.verbs.orders import VerbsPathChange, VerbsQp, VerbsSource
from cwdp.agent.verbs.watched import MOST_OF_A_NIC, watched_paths
from cwdp.rdma.shimwire import RTR
from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.messages import Desired, Event, ProbeEdge, Spread, SteerQp, UdAddress
from cwdp.shared.verbs import VerbsReport

SQE = 5
"""A state in which it does not send."""

THERE, AWAY = "10.0.1.1", "10.0.2.1"
PEER = UdAddress(f"::ffff:{THERE}", 77)
SPREAD = Spread(nic="hw0", dst_addr=THERE, sports=[50_001, 50_002], dst_ud=PEER)


def qp(
    number: int, sport: int | None = 50_001, *, nic: str = "hw0", dst_addr: str = THERE, refused: int = 0
) -> VerbsQp:
    return VerbsQp(number, 40, "mlx5_0", number, 3, nic, dst_addr, number, sport, True, "mlx5dv", refused)


def edge(src: str, dst_addr: str, sports: list[int]) -> ProbeEdge:
    return ProbeEdge(
        src=src, dst="b/hw0", src_addr="10.0.0.1", dst_addr=dst_addr, sports=sports, reply_sports=sports,
        pairs_per_s=1.0, dst_ud=PEER,
    )  # fmt: skip


class NoteNic:
    """Keeps what it is to watch."""

    ifname = "hw0"

    def __init__(self) -> None:
        self.keeper = self
        self.descriptor = -1
        self.watched: list[UdWatched] = []
        self.pace = WatchPace()

    def tell_by(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def watch(self, watched: list[UdWatched], pace: WatchPace) -> None:
        self.watched, self.pace = watched, pace


class Seen:
    """Queue pairs that uprobes have seen."""

    def __init__(self) -> None:
        self.queue_pairs: list[VerbsQp] = []
        self.on_change: Callable[[], None] = lambda: None


class Setup:
    """An agent's part, with a NIC that hardware sends by and one that has a dataplane."""

    def __init__(self, **config: Any) -> None:
        self.nic = NoteNic()
        settings = AgentConfig(
            nics=["hw0", "tc0"], host="a", interface={"hw0": InterfaceConfig(transport="ud")}, **config
        )
        self.uprobes, self.bus = Seen(), NoteOrders()
        self.verbs = HostVerbs(self.bus, settings, [self.nic], self.uprobes)

    def told(self, *queue_pairs: VerbsQp) -> None:
        """Programs have told of these."""
        assert self.verbs.keeper is not None
        self.verbs.keeper._queue_pairs = {one.number: one for one in queue_pairs}
        self.verbs.keeper.changes += 1


def desired(**fields: Any) -> Desired:
    return Desired(
        host="a", version=1, probes=[edge("a/hw0", AWAY, [50_005, 4_791])], spreads=[SPREAD], **fields
    )


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Setup]]:
    made: list[Setup] = []

    def setup(*, lids: bool = False, **config: Any) -> Setup:
        made.append(Setup(verbs=VerbsConfig(socket=str(tmp_path / "verbs.sock"), lids=lids), **config))
        return made[-1]

    yield setup
    for each in made:
        assert each.verbs.keeper is not None
        each.verbs.keeper.close()


@pytest.fixture
def setup(make: Callable[..., Setup]) -> Setup:
    return make()


def test_without_the_section_there_is_nothing() -> None:
    off = Setup()
    off.verbs.want(desired())
    off.verbs.watch_paths()
    assert (off.verbs.jobs(), off.verbs.counters, list(off.verbs.parts()), off.verbs.steered()) == (
        [],
        {},
        [],
        [],
    )
    assert (off.nic.descriptor, off.verbs.is_running) == (-1, False)


@pytest.mark.parametrize(
    ("lids", "observes", "runs"),
    [(True, False, True), (False, False, True), (True, True, True), (True, False, False)],
)
def test_ports_of_infiniband_are_told_where_programs_take_their_lids(
    make: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, lids: bool, observes: bool, runs: bool
) -> None:
    found = [VerbsSource("ib_0", "ib_0", 1, 0, "fe80::10", 16, 2)]
    monkeypatch.setattr(keeper_module, "sources", lambda _nics: [])
    monkeypatch.setattr(keeper_module, "lid_sources", lambda: found)
    monkeypatch.setattr(keeper_module.VerbsKeeper, "is_running", runs)
    one = make(observe_only=observes, lids=lids)
    assert one.verbs.keeper is not None
    asyncio.run(one.verbs.keeper._look_for_sources())
    told = [IbPort("ib_0", "fe80::10", PortLids(16, 2))] if lids and runs else []
    assert one.verbs.ib_ports == told
    one.told(qp(1, 33, nic="ib_0"))
    assert [part.nic for part in one.verbs.parts()] == [port.nic for port in told]


def test_where_the_manager_says_nothing_probed_ports_are_taken() -> None:
    found = with_probed(
        [SPREAD],
        [edge("a/hw0", THERE, [50_009]), edge("a/hw0", AWAY, [50_005, 4_791]), edge("a/tc0", AWAY, [7])],
    )
    assert [(one.nic, one.dst_addr, one.sports) for one in found] == [
        ("hw0", THERE, [50_001, 50_002]),
        ("hw0", AWAY, [50_005]),
    ]


def test_orders_are_of_the_nics_without_a_dataplane(setup: Setup) -> None:
    steer = [SteerQp(nic=nic, dst_addr=THERE, qpn=1, sport=50_002) for nic in ("hw0", "tc0")]
    setup.verbs.want(desired(steer=steer))
    assert setup.verbs.keeper is not None
    wanted = setup.verbs.keeper._wanted
    assert (wanted.moved, wanted.steer, len(wanted.spreads)) == (["hw0"], steer[:1], 2)
    assert setup.nic.descriptor == setup.verbs.keeper.watcher.fileno()


def test_an_agent_that_only_observes_orders_nothing(make: Callable[..., Setup]) -> None:
    setup = make(observe_only=True)
    setup.verbs.want(desired(steer=[SteerQp(nic="hw0", dst_addr=THERE, qpn=1, sport=50_002)]))
    setup.told(qp(1))
    setup.verbs.watch_paths()
    assert setup.verbs.keeper is not None
    wanted = setup.verbs.keeper._wanted
    assert (wanted.moved, wanted.steer, wanted.spreads, setup.nic.watched) == ([], [], [], [])


def test_what_was_done_is_told_as_steered(setup: Setup) -> None:
    steer = [SteerQp(nic="hw0", dst_addr=THERE, qpn=qpn, sport=50_002) for qpn in (1, 2, 3)]
    setup.verbs.want(desired(steer=steer))
    setup.told(qp(1), qp(2, refused=95))
    assert setup.verbs.steered() == steer[:1]


def test_paths_that_queue_pairs_take_or_could_take_are_watched(setup: Setup) -> None:
    setup.verbs.want(desired())
    setup.told(qp(1), qp(2, None), qp(3, dst_addr="10.9.9.9"), qp(4, nic="tc0"))
    setup.verbs.watch_paths()
    assert setup.nic.watched == [
        UdWatched(PEER, THERE, 50_001, True),
        UdWatched(PEER, THERE, 50_002, False),
    ]
    assert setup.nic.pace == WatchPace(
        interval_ns=2_000_000, dead_after_ns=10_000_000, hold_down_ns=500_000_000
    )
    setup.told()
    setup.verbs.watch_paths()
    assert setup.nic.watched == []


def test_acks_of_one_that_only_receives_take_its_path_too(setup: Setup) -> None:
    setup.verbs.want(desired())
    setup.told(qp(1)._replace(state=RTR), qp(2, 50_002)._replace(state=SQE))
    setup.verbs.watch_paths()
    assert [(one.sport, one.in_use) for one in setup.nic.watched] == [(50_001, True), (50_002, False)]


def test_no_more_paths_are_watched_than_may_be() -> None:
    those = [qp(number, 49_152 + number) for number in range(2 * MOST_OF_A_NIC)] + [qp(9_000, 65_000)] * 2
    found = watched_paths([*those, qp(9_001, 65_000)], [SPREAD])["hw0"]
    assert len(found) == MOST_OF_A_NIC
    assert found[0].sport == 65_000


def test_queue_pairs_are_told_of_until_there_are_none_and_once_more(setup: Setup) -> None:
    said: list[VerbsReport] = []
    for told in ([], [qp(1)], [], []):
        setup.told(*told)
        setup.verbs.tell(lambda _kind, report: said.append(report))
    assert [(report.number, len(report.nics)) for report in said] == [(1, 1), (2, 0)]


def test_paths_that_change_are_events(setup: Setup) -> None:
    setup.verbs.want(desired())
    assert setup.verbs.keeper is not None
    setup.verbs.keeper._path_changes = [
        VerbsPathChange("hw0", THERE, 50_001, is_down=is_down, queue_pairs=3 * is_down)
        for is_down in (True, False)
    ]
    said: list[Event] = []
    setup.verbs.tell_events(said.append, 7)
    setup.verbs.tell_events(said.append, 8)
    assert [(event.kind, event.nic, event.local_ns) for event in said] == [
        ("path_down", "hw0", 7),
        ("path_up", "hw0", 7),
    ]
    assert said[0].path is not None
    assert (said[0].path.dst_addr, said[0].path.sport, said[0].path.queue_pairs) == (THERE, 50_001, 3)
    assert said[0].detail == f"to {THERE} from port 50001: silent; 3 queue pairs are told to move"
