"""Settings, counters, timeline identity, and messages that are not to be trusted."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fakes import hello, nic, path_stat, ud_nic

from cwdp.errors import ConfigError, ManagerError
from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.edges import EdgeFit, fit_rows, path_rows
from cwdp.shared.bus.messages import (
    DEFAULT_REPORT_INTERVAL_S,
    ClockLine,
    Event,
    Hello,
    ProbeEdge,
    Report,
    UdAddress,
)
from manager.clock.timeline import Identity, is_running, load_identity
from manager.config import ManagerConfig, ProbeSettings, host_port, load
from manager.hosts.counters import CounterTotals
from manager.overrides.grantable import require_known
from manager.state import FleetState

FIT = EdgeFit(
    src="a/eth0",
    dst="b/eth0",
    ref_local_ns=10**12,
    offset_base_ns=5,
    offset_ns=0.25,
    slope=1e-6,
    margin_ns=5000.0,
    sigma_offset_ns=2.0,
    sigma_out_ns=3.0,
    sigma_back_ns=3.0,
    sigma_slope=1e-9,
    points=16.0,
    pure_share=1.0,
)
PROBE = ProbeEdge(
    src="a/eth0",
    dst="b/eth0",
    src_addr="10.0.0.1",
    dst_addr="10.0.0.2",
    sports=[50000],
    reply_sports=[60000],
    pairs_per_s=1.0,
)


def _report(host: str = "a", **changes: Any) -> Report:
    report = Report(host=host, boot_id="x", seq=1, local_ns=10**12, counters={}, clock=None)
    return msgspec.structs.replace(report, **changes)


def _state(*, continued: bool = False) -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=continued)
    for host in ("a", "b"):
        state.hear_hello(hello(host), 0.0)
    return state


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"slope": math.nan}, "not_sane"),
        ({"offset_ns": math.inf}, "not_sane"),
        ({"slope": 0.5}, "not_sane"),
        ({"sigma_offset_ns": 0.0}, "not_sane"),
        ({"sigma_offset_ns": -1.0}, "not_sane"),
        ({"sigma_out_ns": 1e300}, "not_sane"),
        ({"margin_ns": -1e300}, "not_sane"),
        ({"ref_local_ns": 2**63 - 1}, "not_sane"),
        ({"offset_base_ns": -(2**63)}, "not_sane"),
        ({"src": "b/eth0", "dst": "a/eth0"}, "not_its_own"),
        ({"dst": "a/eth1"}, "not_its_own"),
        ({"dst": "stranger/eth0"}, "unknown_peer"),
        ({"dst": "nonsense"}, "unknown_peer"),
    ],
)
def test_a_fit_that_cannot_be_is_counted_and_harmless(changes: dict[str, Any], reason: str) -> None:
    state = _state()
    state.hear_report(_report(fits=fit_rows([msgspec.structs.replace(FIT, **changes), FIT])), 1.0)
    assert state.clock.fits.refused[reason] == 1
    assert len(state.clock.fits) == 1


def _with_ud(*, gid: str | None = None, **changes: Any) -> Hello:
    """A hello whose NIC's UD address is not what the NIC is otherwise."""
    one = ud_nic()
    ud = one.ud if gid is None else UdAddress(gid, 17)
    return msgspec.structs.replace(hello("c"), nics=[msgspec.structs.replace(one, ud=ud, **changes)])


def _with_ib(*gids: str, nic: str = "mlx5_0") -> Hello:
    """A hello with ports of InfiniBand; `nic` is what the first is called."""
    ports = [
        IbPort(nic if i == 0 else f"mlx5_{i}", gid, PortLids(8 * i + 8, 2)) for i, gid in enumerate(gids)
    ]
    return msgspec.structs.replace(hello("c"), ib_ports=ports)


@pytest.mark.parametrize(
    "bad",
    [
        hello(""),
        hello("a/b"),
        hello("a\nb"),
        hello("c", desired_version=2**64 - 1),
        hello("c", desired_version=-1),
        msgspec.structs.replace(hello("c"), nics=[nic(), nic()]),
        msgspec.structs.replace(hello("c"), nics=[nic("")]),
        msgspec.structs.replace(hello("c"), nics=[nic("eth/0")]),
        msgspec.structs.replace(hello("c"), nics=[nic(ipv4="fd00::1")]),
        msgspec.structs.replace(hello("c"), nics=[nic(ipv6="nonsense")]),
        _with_ib("nonsense"),
        _with_ib("fe80::1", "fe80:0::1"),
        _with_ib("fe80::1", nic="eth0"),
        _with_ib("fe80::1", nic="mlx5/0:1"),
        _with_ud(gid="nonsense"),
        _with_ud(gid="::ffff:10.9.9.9"),
        _with_ud(transport="xdp"),
        _with_ud(ipv6="fd00::1"),
    ],
)
def test_a_hello_that_peers_could_not_use_is_counted_and_harmless(bad: Hello) -> None:
    state = _state()
    state.hear_hello(bad, 1.0)
    assert state.hellos == {"ok": 2, "not_sane": 1}
    assert set(state.members.hosts) == {"a", "b"}


LINE = ClockLine(
    ref_local_ns=10**12,
    offset_base_ns=5,
    offset_ns=0.0,
    drift=1e-6,
    bound_ns=10.0,
    bound_drift=1e-9,
    state="synced",
)


@pytest.mark.parametrize(
    "changes",
    [
        {"drift": -1.0},
        {"drift": math.nan},
        {"bound_ns": math.inf},
        {"bound_drift": -1.0},
        {"offset_base_ns": 2**63},
        {"ref_local_ns": -(2**63)},
        {"state": "unsynced"},
        {"state": "set_aside"},
    ],
)
def test_a_line_that_cannot_carry_the_timeline_on(changes: dict[str, Any]) -> None:
    assert is_running(10**12, LINE)
    assert not is_running(10**12, msgspec.structs.replace(LINE, **changes))
    assert not is_running(2**63, LINE)
    assert not is_running(10**12, None)


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize(("others_s", "started_s"), [((0.5,), 1.0), ((3.0,), 3.0), ((), 6.0)])
def test_clocks_start_when_every_host_that_is_measured_has_measured_too(
    others_s: tuple[float, ...], started_s: float, *, continued: bool
) -> None:
    state = _state(continued=continued)
    for now_s in np.arange(0, 7, 0.5):
        state.hear_report(_report(fits=fit_rows([FIT]), clock=LINE), now_s)
        if now_s in others_s:
            back = msgspec.structs.replace(FIT, src=FIT.dst, dst=FIT.src)
            state.hear_report(_report("b", fits=fit_rows([back]), clock=LINE), now_s)
        if state.clock.begin(now_s) is not None:
            break
    assert now_s == started_s


def test_events_are_cut_and_those_of_strangers_dropped() -> None:
    state = _state()
    before = len(state.events)
    event = Event(host="a", local_ns=1, kind="link_up", nic="eth0", detail="x" * 10**6)
    state.hear_event(event)
    state.hear_event(msgspec.structs.replace(event, nic="nonsense"))
    state.hear_event(msgspec.structs.replace(event, host="stranger"))
    assert [(e.nic, len(e.detail)) for e in list(state.events)[before:]] == [("eth0", 200), (None, 200)]


def test_a_torn_fit_is_kept_for_the_solver_to_judge() -> None:
    state = _state()
    state.hear_report(_report(fits=fit_rows([msgspec.structs.replace(FIT, torn=True, slope=0.1)])), 1.0)
    assert not state.clock.fits.edges(1.0).fits.valid.any()
    assert len(state.clock.fits.edges(1.0).src) == 1


def test_stale_fits_are_not_solved() -> None:
    state = _state()
    state.hear_report(_report(fits=fit_rows([FIT])), 1.0)
    assert len(state.clock.fits.edges(4.0).src) == 1
    assert len(state.clock.fits.edges(4.1).src) == 0


def test_reports_of_strangers_and_foreign_paths_are_counted() -> None:
    state = _state()
    state.hear_report(_report("stranger"), 1.0)
    foreign = msgspec.structs.replace(path_stat(PROBE), src="b/eth0")
    impossible = msgspec.structs.replace(path_stat(PROBE), sent=1, lost=2)
    state.hear_report(
        _report(paths=path_rows([path_stat(PROBE), path_stat(PROBE), foreign, impossible])), 1.0
    )
    assert len(state.owd) == 1
    assert state.reports["unknown_host"] == 1
    assert state.reports["foreign_path"] == 3


def test_gaps_in_reports_are_counted_but_not_over_a_restart() -> None:
    state = _state()
    for boot, seq in (("x", 1), ("x", 4), ("y", 0), ("y", 1)):
        state.hear_report(_report(boot_id=boot, seq=seq), 1.0)
    assert state.reports["lost_on_the_way"] == 2


def test_counters_rise_over_restarts_and_sum_over_hosts_and_interfaces() -> None:
    totals = CounterTotals()
    totals.add("a", {"dataplane.eth0.probe_ok": 5, "dataplane.eth1.probe_ok": 2})
    totals.add("b", {"dataplane.eth0.probe_ok": 10})
    totals.add("a", {"dataplane.eth0.probe_ok": 3, "dataplane.eth1.probe_ok": 2})
    totals.forget("b")
    assert totals.totals["dataplane", "probe_ok"] == 5 + 2 + 10 + 3


@pytest.mark.parametrize("name", ["", "x.y", "dataplane", "dataplane.Bad Reason", "agent." + "x" * 99])
def test_counters_of_another_form_are_dropped(name: str) -> None:
    totals = CounterTotals()
    totals.add("a", {name: 1})
    assert (totals.dropped, dict(totals.totals)) == (1, {})


def test_too_many_counter_names_are_dropped() -> None:
    totals = CounterTotals()
    totals.add("a", {f"agent.name{i}": 1 for i in range(1000)})
    assert len(totals.totals) == 512
    assert totals.dropped == 488


def test_nothing_is_planned_before_it_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[float] = []
    state = _state()
    monkeypatch.setattr(state.planner, "plan", lambda now_s, **_: planned.append(now_s))
    assert not state.may_plan(1.0)
    assert state.plan(1.0) == []
    members = state.probeable(1.0)
    state.schedule(members, state.build_graph(members))
    assert state.may_plan(2.0)
    state.plan(2.0)
    assert planned == [2.0]


def test_hosts_are_told_to_report_more_seldom_while_the_manager_is_behind() -> None:
    state = _state()
    members = state.probeable(0.0)
    told = state.schedule(members, state.build_graph(members))
    assert {document.report_interval_s for document in told} == {DEFAULT_REPORT_INTERVAL_S}
    assert [document for second in range(5) for document in state.keep_up(2.0, float(second))] == []
    told = state.keep_up(2.0, 5.0)
    assert {document.host for document in told} == {"a", "b"}
    assert {document.report_interval_s for document in told} == {1.5 * DEFAULT_REPORT_INTERVAL_S}
    state.stand_by()
    assert [document for second in range(6, 90) for document in state.keep_up(0.0, float(second))] == []


def test_the_timeline_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "timeline.json"
    first, continued = load_identity(path)
    assert not continued
    second, continued = load_identity(path)
    assert continued
    assert second.timeline == first.timeline
    assert second.first_seq > first.first_seq
    path.write_text("{garbage")
    assert load_identity(path)[0].timeline != first.timeline


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ManagerError, match="cannot write"):
        load_identity(tmp_path / "file" / "timeline.json")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("sockett = 'x'", "sockett", "known keys of the top level: name, pod, authority, nats, bus_listen"),
        ("[probes]\ndegre = 3", "degre", "known keys of [probes]: degree, paths"),
        ("[probes]\ndegree = 'x'", "Expected `int`, got `str` - at `$.probes.degree`", "degree"),
        ("[probes]\ndegree = 1", ">= 2", "degree"),
        ("[probes]\nfamily = '5'", "'5'", "family"),
        ("socket = 5", "Expected `str`, got `int` - at `$.socket`", "correct the value"),
        ("socket = ", "Invalid value", ""),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_the_known_ones(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    path = tmp_path / "manager.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_status == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")


def test_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "manager.toml"
    path.write_text('listen = "127.0.0.1:9478"\n[probes]\npairs_per_s = 200\nfamily = "both"')
    assert load(path) == ManagerConfig(
        listen="127.0.0.1:9478", probes=ProbeSettings(pairs_per_s=200.0, family="both")
    )


@pytest.mark.parametrize("text", ["", "4222", "host:", ":4222", "host:0", "host:99999", "host:x"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        host_port(text, "--listen")


def test_addresses() -> None:
    assert host_port("[::1]:4222", "--listen") == ("::1", 4222)
    assert host_port("h:1", "--listen") == ("h", 1)


def test_nothing_can_be_asked_of_a_nic_without_a_dataplane() -> None:
    state = _state()
    state.hear_hello(
        msgspec.structs.replace(hello("c"), nics=[nic("eth0"), ud_nic("eth1", gid="fd00::9")]), 1.0
    )
    require_known(state.members, "c", "eth0")
    for ifname, message in (("eth1", "no dataplane"), ("eth2", "has no interface")):
        with pytest.raises(ConfigError, match=message):
            require_known(state.members, "c", ifname)
