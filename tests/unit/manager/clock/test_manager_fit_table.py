"""What the manager takes in of changed clocks, and whom it tells."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from cwdp.shared.bus.clocks import Discipline, OwnChange
from cwdp.shared.bus.edges import EdgeFit, fit_rows
from cwdp.shared.bus.messages import ClockUpdate, Report
from cwdp.shared.clocksync import FitReason
from cwdp.shared.clocksync._types import LONG_AGO
from manager.clock.fits import STALE_AFTER_S, FitTable
from manager.clock.service import ClockService
from manager.clock.timeline import Identity

S = 1_000_000_000
HOSTS = ("a", "b", "c", "d", "e", "f")
FIT = EdgeFit(
    src="a/nic0",
    dst="b/nic0",
    ref_local_ns=100 * S,
    offset_base_ns=-3 * S,
    offset_ns=0.25,
    slope=2e-5,
    margin_ns=5_000.0,
    sigma_offset_ns=5.0,
    sigma_out_ns=7.0,
    sigma_back_ns=7.0,
    sigma_slope=2e-9,
    points=8.0,
    pure_share=1.0,
)
OWN = OwnChange(
    since_local_ns=99 * S, ref_local_ns=100 * S, ahead_ns=5_000.0, rate=1e-5, sigma_ns=20.0, sigma_rate=1e-8
)


def fit(**changes: Any) -> EdgeFit:
    return msgspec.structs.replace(FIT, **changes)


def table(*fits: EdgeFit) -> FitTable:
    table = FitTable()
    table.add("a", fit_rows(fits), HOSTS, 1.0)
    return table


def test_what_agents_say_of_changes_reaches_the_graph() -> None:
    since_ns = 99 * S
    edges = table(
        fit(),
        fit(dst="c/nic0", young=True, own=True, apart=1e-5, since_local_ns=since_ns),
        fit(dst="d/nic0", young=True, cut=True, apart=2e-5, since_local_ns=since_ns),
        fit(dst="e/nic0", since_local_ns=since_ns),
        fit(dst="f/nic0", torn=True),
    ).edges(1.0)
    order = np.argsort(edges.dst)
    assert edges.since_ns[order].tolist() == [LONG_AGO, since_ns, since_ns, since_ns, LONG_AGO]
    assert edges.young[order].tolist() == [False, True, True, False, False]
    assert edges.own[order].tolist() == [False, True, False, False, False]
    assert edges.apart[order].tolist() == [0, 1e-5, 2e-5, 0, 0]
    reasons = [FitReason.OK, FitReason.OK, FitReason.CUT, FitReason.OK, FitReason.TORN]
    assert edges.fits.reason[order].tolist() == reasons
    assert edges.fits.valid[order].tolist() == [True, True, False, True, False]


def test_a_newer_fit_takes_back_what_the_last_one_said() -> None:
    fits = table(fit(young=True, cut=True, own=True, apart=1e-5, since_local_ns=99 * S))
    fits.add("a", fit_rows([fit()]), HOSTS, 2.0)
    edges = fits.edges(2.0)
    assert (edges.young.any(), edges.own.any(), edges.apart.tolist()) == (False, False, [0.0])
    assert edges.since_ns.tolist() == [LONG_AGO]
    assert edges.fits.valid.all()
    assert len(fits.edges(2.1 + STALE_AFTER_S).src) == 0


def test_a_cut_fits_numbers_are_void_and_not_judged() -> None:
    void = {
        "sigma_offset_ns": 0.0,
        "sigma_out_ns": 0.0,
        "sigma_back_ns": 0.0,
        "sigma_slope": 0.0,
        "points": 0.0,
    }
    fits = table(fit(cut=True, young=True, slope=0.5, **void), fit(dst="c/nic0", slope=0.5, **void))
    assert len(fits) == 1
    assert fits.refused["not_sane"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"apart": math.nan},
        {"apart": math.inf},
        {"apart": 1e13},
        {"since_local_ns": 2**63 - 1},
        {"since_local_ns": -(2**63 - 1)},
        {"cut": True, "offset_ns": math.nan},
        {"cut": True, "ref_local_ns": 2**63 - 1},
        {"young": True, "slope": 2e-3},
    ],
)
def test_fits_that_cannot_be_reckoned_with_are_refused(wrong: dict[str, Any]) -> None:
    fits = table(fit(**wrong))
    assert len(fits) == 0
    assert fits.refused["not_sane"] == 1


def test_what_hosts_say_of_their_own_clocks_is_kept_by_slot_until_they_say_no_more() -> None:
    fits = table(fit(), fit(dst="c/nic0"))
    assert len(fits.own().host) == 0
    fits.hear_own("c", msgspec.structs.replace(OWN, ahead_ns=-7.5))
    fits.hear_own("a", OWN)
    own = fits.own()
    order = np.argsort(own.ahead_ns)
    assert own.host[order].tolist() == [fits.slots["c"], fits.slots["a"]]
    assert own.ref_ns.tolist() == [100 * S] * 2
    assert own.ahead_ns[order].tolist() == [-7.5, 5_000.0]
    assert (own.sigma_ns.tolist(), own.rate.tolist(), own.sigma_rate.tolist()) == (
        [20.0] * 2,
        [1e-5] * 2,
        [1e-8] * 2,
    )
    assert own.host.dtype == own.ref_ns.dtype == np.int64
    fits.hear_own("a", None)
    assert fits.own().host.tolist() == [fits.slots["c"]]
    fits.forget_host("c")
    assert len(fits.own().host) == 0


def test_of_a_host_without_a_slot_nothing_is_kept() -> None:
    fits = table(fit())
    fits.hear_own("stranger", OWN)
    assert len(fits.own().host) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"ahead_ns": math.nan},
        {"ahead_ns": -1e13},
        {"rate": 1e-3},
        {"rate": -math.inf},
        {"sigma_ns": 0.0},
        {"sigma_ns": math.nan},
        {"sigma_rate": -1e-9},
        {"ref_local_ns": 2**62 + 1},
        {"since_local_ns": -(2**63 - 1)},
    ],
)
def test_own_changes_that_cannot_be_reckoned_with_are_refused_and_undo_the_last(
    wrong: dict[str, Any],
) -> None:
    fits = table(fit())
    fits.hear_own("a", OWN)
    fits.hear_own("a", msgspec.structs.replace(OWN, **wrong))
    assert len(fits.own().host) == 0
    assert fits.refused["not_sane"] == 1


class Told:
    """A service that hears six hosts, each of which probes the next two, and tells them."""

    def __init__(self) -> None:
        self.service = ClockService(Identity(timeline="t", starts=1), continued=False)
        self.now_s = 10.0
        self.agents = dict.fromkeys(HOSTS, "first")
        self.ahead_ns = dict.fromkeys(HOSTS, 0)
        self.discipline: Discipline | None = None
        self.pairs = [
            (host, HOSTS[(number + step) % 6]) for number, host in enumerate(HOSTS) for step in (1, 2)
        ]

    def round(self, changed: Sequence[str] = (), since_ns: int | None = None) -> dict[str, ClockUpdate]:
        """A quarter of a second, in which edges of some hosts are young."""
        self.now_s += 0.25
        now_ns = round(self.now_s * S)
        for host in HOSTS:
            fits = []
            for src, dst in self.pairs:
                if src == host:
                    young = src in changed or dst in changed
                    fits.append(
                        fit(
                            src=f"{src}/nic0",
                            dst=f"{dst}/nic0",
                            ref_local_ns=now_ns,
                            offset_base_ns=self.ahead_ns[dst] - self.ahead_ns[src],
                            slope=0.0,
                            young=young,
                            own=src in changed,
                            apart=1e-5 * young,
                            since_local_ns=since_ns if young else None,
                        )
                    )
            report = Report(
                host=host,
                boot_id=self.agents[host],
                seq=0,
                local_ns=now_ns,
                fits=fit_rows(fits),
                counters={},
                clock=None,
                discipline=self.discipline,
            )
            self.service.hear(report, HOSTS, self.now_s)
        edges = self.service.begin(self.now_s)
        if edges is None:
            return {}
        solved = self.service.solve_edges(edges)
        assert solved is not None
        self.service.finish(edges, solved, self.now_s)
        return {update.host: update for update in self.service.updates()}


def test_changed_hosts_and_their_peers_are_told_and_nobody_else() -> None:
    told = Told()
    for _ in range(12):
        updates = told.round()
    assert len(updates) == 6
    assert not any(update.changes or update.line.found_anew for update in updates.values())
    since_ns = round(told.now_s * S)
    told.round(["b"], since_ns)
    updates = told.round(["b"], since_ns)
    # b probes c and d, and is probed by a and f.
    assert sorted(host for host, update in updates.items() if update.changes) == ["a", "b", "c", "d", "f"]
    for host, update in updates.items():
        assert [changed.host for changed in update.changes] == ([] if host == "e" else ["b"])
        assert update.line.found_anew == (host == "b")
        for changed in update.changes:
            assert changed.since_ns == pytest.approx(since_ns, abs=100_000)
    updates = told.round()
    assert not any(update.changes or update.line.found_anew for update in updates.values())


def test_solutions_tell_whose_word_is_in_them() -> None:
    told = Told()
    for _ in range(12):
        assert {update.agent for update in told.round().values()} <= {""}
    told.discipline = Discipline(source="adjtimex", frequency_ppb=0.0, changes=0, changed_s_ago=None)
    assert {update.agent for update in told.round().values()} == {"first"}
    told.agents["b"], told.discipline = "second", None
    assert told.round()["b"].agent == "first"
    told.discipline = Discipline(
        source="adjtimex", frequency_ppb=0.0, changes=0, changed_s_ago=None, kept=True
    )
    updates = told.round()
    assert [host for host, update in updates.items() if update.agent == "second"] == ["b"]


def test_a_changed_hosts_rate_is_told_to_nobody() -> None:
    told = Told()
    for _ in range(16):
        told.round()
    since_ns = round(told.now_s * S)
    priors: list[tuple[str, str]] = []
    for _ in range(8):
        for host, update in told.round(["b"], since_ns).items():
            priors += [(host, prior.dst) for prior in update.priors]
    assert priors
    assert not any("b" in (host, dst.removesuffix("/nic0")) for host, dst in priors)


@pytest.mark.parametrize("another_agent", [False, True])
def test_a_clock_that_stepped_while_its_agent_was_away_keeps_its_line(another_agent: bool) -> None:
    told = Told()
    for _ in range(16):
        told.round()
    told.ahead_ns["b"] = 300_000
    if another_agent:
        told.agents["b"] = "second"
    updates = told.round()
    assert updates["b"].line.state == ("synced" if another_agent else "set_aside")
    assert [host for host, update in updates.items() if update.line.state != "synced"] == (
        [] if another_agent else ["b"]
    )


def test_a_report_that_comes_in_while_clocks_are_solved_does_not_disturb_it() -> None:
    """Solving runs in a thread: a new host may get its slot meanwhile, and say at once that its clock has changed."""
    told = Told()
    for _ in range(12):
        told.round()
    told.round(["b"], round(told.now_s * S))
    edges = told.service.begin(told.now_s)
    assert edges is not None
    known = (*HOSTS, "g")
    own = msgspec.structs.replace(OWN, ref_local_ns=round(told.now_s * S))
    late = Report(
        host="g",
        boot_id="",
        seq=0,
        local_ns=round(told.now_s * S),
        fits=fit_rows(
            [fit(src="g/nic0", dst="a/nic0", ref_local_ns=round(told.now_s * S), offset_base_ns=0)]
        ),
        counters={},
        clock=None,
        own_change=own,
    )
    told.service.hear(late, known, told.now_s)
    assert told.service.solve_edges(edges) is not None


@pytest.mark.parametrize("says", ["nothing", "young", "own"])
def test_clocks_are_solved_again_after_a_while_or_at_once_where_one_is_said_to_have_changed(
    says: str,
) -> None:
    told = Told()
    assert told.service.is_due(told.now_s, 9.0)
    for _ in range(12):
        told.round()
    begun_s = told.now_s
    assert told.service.begin(begun_s) is not None
    now_ns = round(begun_s * S)
    report = Report(
        host="a",
        boot_id="",
        seq=0,
        local_ns=now_ns,
        fits=fit_rows([fit(ref_local_ns=now_ns, young=says == "young", since_local_ns=now_ns - S)]),
        counters={},
        clock=None,
        own_change=msgspec.structs.replace(OWN, ref_local_ns=now_ns) if says == "own" else None,
    )
    told.service.hear(report, HOSTS, begun_s)
    assert told.service.is_due(begun_s + 0.1, 0.5) == (says != "nothing")
    assert told.service.is_due(begun_s + 0.5, 0.5)
    told.service.begin(begun_s + 0.1)
    assert not told.service.is_due(begun_s + 0.2, 0.5)


FAR = "x"


def _told(draw: np.random.Generator) -> list[EdgeFit]:
    """The same edges most of the time, one to another pod; some are not the host's own, to strangers, or not sane."""
    fits = [
        fit(src=f"a/nic{nic}", dst=f"{peer}/nic{nic}", offset_ns=float(draw.normal()))
        for peer in (*HOSTS[1:], FAR)
        for nic in range(2)
    ]
    match draw.integers(8):
        case 0:
            fits = fits[: draw.integers(len(fits))]
        case 1:
            fits.append(fit(src="b/nic0", dst="c/nic0"))
        case 2:
            fits.append(fit(dst="stranger/nic0"))
        case 3 | 4:
            fits[3] = fit(src="a/nic1", dst="c/nic1", slope=0.5)
    return fits


@pytest.mark.parametrize("seed", range(3))
def test_a_report_is_taken_in_as_if_each_of_its_edges_came_by_itself(seed: int) -> None:
    """Also while peers become known and are forgotten."""
    draw, whole, each = np.random.default_rng(seed), FitTable(), FitTable()
    for turn in range(120):
        now_s, fits = 1.0 + turn, _told(draw)
        known = HOSTS if turn % 9 else HOSTS[:-2]
        elsewhere = {FAR} if turn % 14 else set(HOSTS[-1:])
        whole.add("a", fit_rows(fits), known, now_s, elsewhere)
        for one in fits:
            each.add("a", fit_rows([one]), known, now_s, elsewhere)
        for fit_table in (whole, each) if turn % 25 == 20 else ():
            fit_table.expire(now_s + 40)
            fit_table.forget_host("c")
        assert whole.refused == each.refused
        assert whole.peers(now_s) == each.peers(now_s)
        mine, theirs = whole.edges(now_s), each.edges(now_s)
        for name in ("src", "dst", "path", "since_ns", "young"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        np.testing.assert_array_equal(mine.fits.offset_frac_ns, theirs.fits.offset_frac_ns)
    assert all(whole.refused.values())


def test_fits_to_other_pods_whose_timelines_are_elsewhere_do_not_enter_the_solve() -> None:
    table = FitTable()
    far = fit(dst="x/nic0", offset_base_ns=9_000 * S)
    table.add("a", fit_rows([fit(), far]), HOSTS, 1.0, {"x"})
    assert table.peers(1.0) == [("a/nic0", "b/nic0")]
    assert set(table.slots) == {"a", "b"}
    assert not sum(table.refused.values())
