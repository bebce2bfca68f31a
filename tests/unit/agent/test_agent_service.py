"""What holds the agent together, with a bus and NICs that only take notes."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from agent_fakes import CONNECTION, NoteBus, edges
from bus_fakes import POD, credential_of
from numpy.typing import NDArray

from cwdp.agent import events, fence, hostbus, service
from cwdp.agent.clock.timebase import Change
from cwdp.agent.config import AgentConfig, InterfaceConfig
from cwdp.agent.pace import SUMS_FROM_S, Pace
from cwdp.agent.service import LOOK_INTERVAL_S, MEASURE_EVERY, Agent
from cwdp.agent.tracing import echo_tests, table, tracer
from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.loading.loader import Loaded
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import ConfigError, CwdpError, DataplaneError, RdmaError
from cwdp.shared.bursts import NicBursts
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import (
    DEFAULT_REPORT_INTERVAL_S,
    BounceReport,
    ClockLine,
    ClockUpdate,
    Desired,
    Event,
    Hello,
    Nic,
    NicQueuePairs,
    NicSamples,
    ProbeEdge,
    Report,
    SteerQp,
    SteerReport,
    TraceReport,
)
from cwdp.shared.bus.records import WINDOW_ROW
from cwdp.shared.bus.subjects import up
from cwdp.shared.identity.probe_keys import KeyFile, read_keys
from cwdp.shared.tasks import every
from cwdp.shared.tcp import SteerTcp

KEY = '[[key]]\nid = {}\nsecret = "' + "ab" * 16 + '"\n'


REPORTS_IN_FULL = 4


def measure(agent: Agent) -> None:
    """Have it look at its probes until it reports."""
    for _ in range(MEASURE_EVERY):
        Passed.now_s += LOOK_INTERVAL_S
        agent._look()


class Passed:
    """The time by which it reports."""

    now_s = 0.0


class NoteNic:
    """Keeps what it is told to do."""

    def __init__(self, config: AgentConfig, ifname: str, *_: object) -> None:
        self.name, self.ifname = f"{config.host}/{ifname}", ifname
        self.maps = self.schedule = self.queue_pairs = None
        self.edges: list[ProbeEdge] = []
        self.keys: list[KeyFile] = []
        self.events: list[Event] = []
        self.failure: DataplaneError | None = None
        self.found: list[Loaded] = []

    def ensure(self, _keys: KeyFile) -> Loaded | None:
        if self.failure:
            raise self.failure
        return self.found.pop() if self.found else None

    def use_keys(self, keys: KeyFile) -> None:
        self.keys.append(keys)

    def probe(self, probes: list[ProbeEdge], _key_id: int) -> None:
        self.edges = probes

    def drain(self, _now_ns: int) -> None:
        return None

    def take_windows(self, _now_local_ns: int, _offset_ns: int | None, **_sums: bool) -> NDArray[np.void]:
        return np.zeros(0, WINDOW_ROW)

    def send(self, _now_ns: int) -> None:
        return None

    def share_unused(self, _now_ns: int) -> bool:
        return False

    def close(self) -> None:
        return None

    def path_events(self) -> list[Event]:
        return self.events

    def pulse_order(self, _key_id: int) -> None:
        return None

    def go_back_order(self) -> None:
        return None

    def describe(self) -> Nic:
        return Nic(ifname=self.ifname, mac="", ipv4=None, ipv6=None, carrier=False, mode="absent")

    def totals(self) -> dict[str, int]:
        return {f"agent.{self.ifname}.pairs_sent": 7}


class Setup:
    """An agent of the host `a` with two NICs."""

    def __init__(self, tmp_path: Path, *, observe_only: bool = False, **settings: Any) -> None:
        self.keys = tmp_path / "keys.toml"
        self.write_keys("send = 1\n" + KEY.format(1))
        config = AgentConfig(
            host="a", nics=["nic0", "nic1"], keys=str(self.keys), observe_only=observe_only, **settings
        )
        self.agent = Agent(config, read_keys(self.keys), credential_of("a"))
        self.agent._pace = Pace(DEFAULT_REPORT_INTERVAL_S, lambda: Passed.now_s)
        self.bus: Any = self.agent._bus._bus
        self.nics: Any = self.agent._nics

    def write_keys(self, text: str) -> None:
        self.keys.write_text(text)
        self.keys.chmod(0o600)

    def said(self, kind: type) -> list[Any]:
        return [message for _, message in self.bus.published if isinstance(message, kind)]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.setattr(hostbus, "Bus", NoteBus)
    monkeypatch.setattr(service, "HostNic", NoteNic)
    monkeypatch.setattr("cwdp.dataplane.loading.loader.object_tag", lambda: "0123456789abcdef")
    return Setup(tmp_path)


def _desired(version: int, peers: int) -> Desired:
    return Desired(host="a", version=version, probes=edges(peers))


def test_each_nic_probes_its_own_edges(setup: Setup) -> None:
    setup.bus.take_desired(_desired(3, 2))
    assert [edge.dst for edge in setup.nics[0].edges] == ["p0/nic0", "p1/nic0"]
    assert setup.nics[1].edges == []


@pytest.mark.parametrize("observe_only", [False, True])
def test_a_host_that_only_observes_applies_no_desired_state_and_says_so(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, observe_only: bool
) -> None:
    host = Setup(tmp_path, observe_only=observe_only)
    wanted: list[list[SteerQp | SteerTcp]] = []
    monkeypatch.setattr(host.agent._steering, "want", lambda steer, _roce, tcp: wanted.append([*steer, *tcp]))
    wish = SteerQp(nic="nic0", dst_addr="10.0.0.2", qpn=5, sport=50_000)
    host.bus.take_desired(Desired(host="a", version=3, probes=edges(2), steer=[wish], tcp=[CONNECTION]))
    assert wanted == [[] if observe_only else [wish, CONNECTION]]
    assert len(host.nics[0].edges) == 2
    host.agent._say_hello()
    assert host.said(Hello)[-1].observe_only is observe_only


@pytest.mark.parametrize("version", [3, 2, 0, -1])
def test_a_document_that_is_not_newer_is_passed_over(setup: Setup, version: int) -> None:
    setup.bus.take_desired(_desired(3, 2))
    setup.bus.take_desired(_desired(version, 1))
    assert len(setup.nics[0].edges) == 2
    setup.agent._say_hello()
    assert setup.said(Hello)[-1].desired_version == 3


def test_what_an_earlier_leader_says_is_passed_over_and_counted(setup: Setup) -> None:
    line = ClockLine(
        ref_local_ns=0,
        offset_base_ns=500,
        offset_ns=0.0,
        drift=0.0,
        bound_ns=9.0,
        bound_drift=0.0,
        state="synced",
    )
    update = ClockUpdate(host="a", timeline="t", epoch=9, seq=5, line=line, priors=[])
    older = msgspec.structs.replace(line, offset_base_ns=10**9)
    setup.bus.take_desired(msgspec.structs.replace(_desired(3, 2), epoch=9))
    setup.bus.take_clock(update)
    setup.bus.take_desired(msgspec.structs.replace(_desired(4, 1), epoch=8))
    setup.bus.take_clock(msgspec.structs.replace(update, epoch=8, seq=6, line=older))
    setup.bus.take_clock(msgspec.structs.replace(update, seq=4, line=older))
    assert len(setup.nics[0].edges) == 2
    assert len(setup.said(SteerReport)) == 1, "a new leader is told at once what is steered"
    measure(setup.agent)
    report = setup.said(Report)[-1]
    assert report.clock.offset_base_ns == 500
    assert (report.counters["agent.desired_fenced"], report.counters["agent.clock_fenced"]) == (1, 2)
    setup.bus.take_desired(msgspec.structs.replace(_desired(1, 1), epoch=10))
    assert len(setup.nics[0].edges) == 1


def test_who_begins_to_lead_is_told_all_paths_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(setup.agent._tracing, "tell_all", lambda: told.append(epoch))
    for epoch, version in ((5, 1), (5, 2), (9, 3), (8, 4), (9, 4), (10, 1)):
        setup.bus.take_desired(msgspec.structs.replace(_desired(version, 1), epoch=epoch))
    assert told == [5, 9, 10]


def test_reports_are_numbered_and_every_fourth_has_counters(setup: Setup) -> None:
    for _ in range(6):
        measure(setup.agent)
    reports = setup.said(Report)
    assert [report.seq for report in reports] == list(range(6))
    assert [bool(report.counters) for report in reports] == [True, False, False, False, True, False]
    assert reports[0].counters == {
        "agent.clock_refused": 0,
        "agent.desired_refused": 0,
        "bus.secrets_not_kept": 0,
        "agent.dataplane_failed": 0,
        "agent.detour_refused": 0,
        "agent.keys_unreadable": 0,
        "agent.pulse_restarts": 0,
        "agent.go_back_restarts": 0,
        "agent.steer_refused": 0,
        "agent.slice_refused": 0,
        "agent.loop_late_ms": 0,
        **{
            f"agent.{name}": 0
            for name in (*echo_tests.COUNTERS, *fence.COUNTERS, *tracer.COUNTERS, *table.COUNTERS)
        },
        **{f"agent.{name}": 0 for name in setup.agent._audits.counters},
        "bus.published": 3,
        "agent.nic0.pairs_sent": 7,
        "agent.nic1.pairs_sent": 7,
    }
    assert len({report.boot_id for report in reports}) == 1


def test_all_it_says_bears_the_boot_id_of_its_hellos(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, nic = setup.agent, setup.nics[0]
    nic.queue_pairs = SimpleNamespace(
        samples=lambda: [NicSamples(nic="nic0", rows=b"")],
        reports=lambda *_: [NicQueuePairs(nic="nic0", rows=b"")],
        bursts=SimpleNamespace(reports=lambda _local_ns: [NicBursts(nic="nic0", rows=b"")]),
    )
    agent._pace.interval_s = SUMS_FROM_S
    monkeypatch.setattr(nic, "take_windows", lambda *_, sums: np.zeros(int(sums), WINDOW_ROW))
    nic.events = [Event(host="a", local_ns=1, kind="path_up", nic="nic0", detail="")]
    monkeypatch.setattr(agent._tracing, "reports", lambda: [TraceReport(host="a", traces=[])])
    agent._say_hello()
    agent._tell_steering()
    agent._tell_decisions()
    agent._tell_windows()
    agent._echo_tests._report(BounceReport(host="a", nic="nic0", number=1, target="", sent=1, lost=0))
    measure(agent)
    (hello,) = setup.said(Hello)
    said = [message for _, message in setup.bus.published if message is not hello]
    kinds = ("hello", "report", "qp", "sample", "burst", "window", "trace", "bounced", "steer", "event")
    assert {subject for subject, _ in setup.bus.published} == {up(POD, "a", kind) for kind in kinds}
    assert {getattr(message, "boot_id", "") for message in said} == {hello.boot_id}


def test_new_keys_are_taken_up_while_it_runs(setup: Setup) -> None:
    setup.agent._look_after()
    assert setup.nics[0].keys == []
    setup.write_keys("send = 2\n" + KEY.format(1) + KEY.format(2))
    setup.agent._look_after()
    setup.agent._look_after()
    for nic in setup.nics:
        assert [keys.send for keys in nic.keys] == [2]
    assert [event.kind for event in setup.said(Event)] == ["keys_changed"]
    assert setup.said(Hello)[-1].key_ids == [1, 2]


@pytest.mark.parametrize("text", ["nonsense", "send = 9\n" + KEY.format(1)])
def test_bad_keys_are_counted_and_the_old_ones_stay(setup: Setup, text: str) -> None:
    setup.write_keys(text)
    setup.agent._look_after()
    setup.keys.unlink()
    setup.agent._look_after()
    assert setup.nics[0].keys == []
    assert setup.agent._totals()["agent.keys_unreadable"] == 2


def test_a_dataplane_that_fails_is_told_and_does_not_stop_the_others(setup: Setup) -> None:
    setup.nics[0].failure = DataplaneError("the kernel refuses BPF programs", "run as root")
    setup.agent._look_after()
    setup.agent._look_after()
    (event,) = setup.said(Event)
    assert (event.kind, event.nic, event.detail) == (
        "dataplane_failed",
        "nic0",
        "the kernel refuses BPF programs",
    )
    assert setup.agent._totals()["agent.dataplane_failed"] == 2


def test_hooks_that_were_put_right_are_told(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ("xdp_ingress is not attached", "tc_egress is not attached")
    found = Loaded(TreePath(1, "nic0"), XdpMode.NATIVE, "tag", changed=True, repaired=taken)
    monkeypatch.setattr(service.interface, "clear", lambda _ifname: None)
    monkeypatch.setattr(setup.agent._clock, "write", lambda _maps: None)
    monkeypatch.setattr(setup.agent._sync.line, "take_up", lambda _maps: None)
    nic = setup.nics[0]
    nic.maps = object()
    nic.found = [found]
    setup.agent._look_after()
    setup.agent._look_after()
    (event,) = setup.said(Event)
    assert (event.kind, event.nic, event.detail) == ("dataplane_repaired", "nic0", ", ".join(taken))


def test_a_change_of_carrier_is_told_at_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = setup.agent
    carrier = {"nic0": True}
    monkeypatch.setattr(agent._links, "carrier", lambda ifname: carrier.get(ifname, False))
    agent._link_changed("lo")
    agent._link_changed("nic0")
    assert setup.bus.published == []
    measure(agent)
    carrier["nic0"] = False
    agent._link_changed("nic0")
    agent._link_changed("nic0")
    carrier["nic0"] = True
    agent._link_changed("nic0")
    assert [(event.kind, event.nic) for event in setup.said(Event)] == [
        ("link_down", "nic0"),
        ("link_up", "nic0"),
    ]
    assert len(setup.said(Hello)) == 3


def test_the_clock_follows_the_manager(setup: Setup) -> None:
    line = ClockLine(
        ref_local_ns=time.monotonic_ns(),
        offset_base_ns=500,
        offset_ns=0.25,
        drift=0.0,
        bound_ns=9.0,
        bound_drift=0.0,
        state="synced",
    )
    setup.bus.take_clock(ClockUpdate(host="a", timeline="t", seq=1, line=line, priors=[]))
    measure(setup.agent)
    clock = setup.said(Report)[-1].clock
    assert (clock.state, clock.offset_base_ns + clock.offset_ns) == ("synced", pytest.approx(500.25))


def test_every_report_in_full_tells_of_the_discipline(setup: Setup) -> None:
    for _ in range(REPORTS_IN_FULL + 1):
        measure(setup.agent)
    told = [report.discipline for report in setup.said(Report)]
    assert [found is not None for found in told] == [True, *[False] * (REPORTS_IN_FULL - 1), True]
    assert told[0] is not None
    assert told[0].source in {"adjtimex", "raw"}
    assert (told[0].changes, told[0].changed_s_ago) == (0, None)


def test_dataplanes_make_local_time_anew_before_probes_are_stamped(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stamped wrongly is known to reach until the dataplanes had their new lines."""
    done: list[Any] = []
    clock = setup.agent._clock
    monkeypatch.setattr(clock, "look", lambda: Change(100, 200, 7.0))
    monkeypatch.setattr(clock, "has_moved", lambda: True)
    monkeypatch.setattr(clock, "write", lambda maps: done.append(list(maps)))
    monkeypatch.setattr(clock, "now_ns", lambda: 250)
    monkeypatch.setattr(setup.agent._sync.edges, "drop_between", lambda begin, end: done.append((begin, end)))
    for nic in setup.nics:
        nic.maps = nic.ifname
        nic.send = lambda _now_ns: done.append("sent")
    setup.agent._send()
    assert done == [["nic0", "nic1"], (100, 250), "sent", "sent"]


def test_probes_leave_at_a_steady_mean_rate(setup: Setup) -> None:
    calls: list[float] = []

    async def run() -> None:
        job = asyncio.create_task(every(0.01, lambda: calls.append(time.monotonic()), jitter=0.5))
        await asyncio.sleep(0.3)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    asyncio.run(run())
    assert 15 <= len(calls) <= 33


def test_a_trouble_that_comes_again_is_told_again(setup: Setup) -> None:
    for message in ("one", "one", "two", "one"):
        setup.nics[0].failure = DataplaneError(message)
        setup.agent._look_after()
    assert [event.detail for event in setup.said(Event)] == ["one", "two", "one"]


def test_a_new_connection_begins_with_a_hello_and_what_could_not_be_said(setup: Setup) -> None:
    setup.bus.connected = False
    for number in range(events.EVENTS_KEPT + 5):
        setup.agent._event("link_up", "nic0", str(number))
    setup.bus.change(False)
    assert setup.bus.published == []
    setup.bus.connected = True
    setup.bus.change(True)
    setup.bus.change(True)
    first, *_ = setup.bus.published
    assert (first[0], first[1].reads_changes) == (up(POD, "a", "hello"), True)
    assert [event.detail for event in setup.said(Event)] == [str(n) for n in range(5, events.EVENTS_KEPT + 5)]


BY_UD: dict[str, Any] = {"interface": {"nic1": InterfaceConfig(transport="ud")}}


def test_a_nic_by_ud_is_told_of_probed_from_and_given_no_dataplane(setup: Setup, tmp_path: Path) -> None:
    host = Setup(tmp_path, **BY_UD)
    assert [type(nic).__name__ for nic in host.nics] == ["NoteNic", "UdNic"]
    host.bus.take_desired(_desired(1, 2))
    assert len(host.nics[0].edges) == 2
    host.agent._say_hello()
    assert [nic.transport for nic in host.said(Hello)[-1].nics] == ["xdp", "ud"]
    measure(host.agent)
    assert host.said(Report)[-1].counters["agent.nic1.ud_restarts"] == 0
    host.agent._link_changed("nic1")
    assert "nic1" not in host.agent._detours._stale


def test_no_nic_stands_in_for_one_without_a_dataplane() -> None:
    nics = ["nic0", "nic1", "nic2", "nic3"]
    assert AgentConfig(nics=nics, **BY_UD).partners() == {"nic2": "nic3", "nic3": "nic2"}
    assert AgentConfig(nics=nics, **BY_UD).xdp_nics == ["nic0", "nic2", "nic3"]


def test_an_rdma_device_that_fails_is_told_once_and_its_return_too(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Setup(tmp_path, **BY_UD)
    ud = host.nics[1]
    outcomes: list[bool | CwdpError] = []

    def ensure(_keys: KeyFile) -> bool:
        outcome = outcomes.pop(0)
        if isinstance(outcome, CwdpError):
            raise outcome
        return outcome

    monkeypatch.setattr(ud, "ensure", ensure)
    monkeypatch.setattr(ud, "port", "mlx5_0 port 1 GID 3 (::ffff:10.0.0.1)")
    gone = RdmaError("the RDMA device mlx5_0 has gone", "")
    outcomes += [True, False, gone, gone, ConfigError("another address"), True, gone]
    for _ in range(len(outcomes)):
        host.agent._look_after()
    assert [(event.kind, event.nic, event.detail) for event in host.said(Event)] == [
        ("rdma_opened", "nic1", "mlx5_0 port 1 GID 3 (::ffff:10.0.0.1)"),
        ("rdma_failed", "nic1", "the RDMA device mlx5_0 has gone"),
        ("rdma_failed", "nic1", "another address"),
        ("rdma_opened", "nic1", "mlx5_0 port 1 GID 3 (::ffff:10.0.0.1)"),
        ("rdma_failed", "nic1", "the RDMA device mlx5_0 has gone"),
    ]
    assert len(host.said(Hello)) == 5
    assert ud.counters["unusable"] == 4


def test_an_agent_does_not_start_on_an_rdma_device_that_is_not_there(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever machine this runs on, it has no interface of this name."""
    host = Setup(tmp_path, **BY_UD)
    with pytest.raises(RdmaError) as caught:
        asyncio.run(host.agent.run())
    assert caught.value.hint


def test_a_bus_whose_task_ends_unforeseen_ends_the_agent(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real bus, whose every connection fails in a way that nobody has foreseen."""

    def unforeseen(*_: object, **__: object) -> None:
        raise LookupError("nobody has foreseen this")

    monkeypatch.setattr(hostbus, "Bus", Bus)
    monkeypatch.setattr("nats.aio.client.Client.connect", unforeseen)
    monkeypatch.setattr("nats.aio.client.Client.close", unforeseen)
    host = Setup(tmp_path)
    with pytest.raises(LookupError):
        asyncio.run(asyncio.wait_for(host.agent.run(), 10))
