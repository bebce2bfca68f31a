"""Findings that do not come from losses: carriers, clocks, flapping, standing queues; and how they are shown."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import hello

from cwdp.cli import main
from cwdp.cli.cluster import link as link_command
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink, Routes, is_nic
from manager.faults.clock_watch import WRONG_FOR_S
from manager.faults.dead_links import localised
from manager.faults.delay_watch import (
    OVER_WINDOWS,
    REMEMBERED_WINDOWS,
    SEEN_NEAR_WINDOWS,
    SEEN_OWN_WINDOWS,
    SEEN_WINDOWS,
    UNKNOWN_WINDOWS,
    DelayWatch,
    Slow,
)
from manager.faults.finding import Finding, Findings, Subject, cable, direction
from manager.faults.flaps import CALM_S, HOUR_S, MOST_CHANGES
from manager.faults.watch import FaultWatch
from manager.links.busy import WINDOWS
from manager.links.inference import QueueInference
from manager.links.loads import LinkLoads
from manager.paths.windows import Window
from manager.state import FleetState
from manager.view import link_views
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

LINKS = (
    *(DirectedLink(*pair) for i in range(3) for pair in ((f"h{i}/nic0", "l1"), ("l1", f"h{i}/nic0"))),
    *(DirectedLink(*pair) for i in range(3) for pair in (("l1", f"s{i}"), (f"s{i}", "l1"))),
)


class _Events:
    """What is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str | None]] = []

    def __call__(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        assert detail
        self.told.append((host, kind, nic))


def test_a_link_without_carrier_is_dead_until_it_has_one() -> None:
    events = _Events()
    watch = FaultWatch(events)
    watch.follow_carriers({"h1/nic0": True, "h2/nic0": True}, LINKS)
    watch.follow_carriers({"h1/nic0": False, "h2/nic0": True}, LINKS)
    watch.follow_carriers({"h1/nic0": False, "h2/nic0": True}, LINKS)
    assert localised(watch.findings) == {("h1/nic0", "l1"), ("l1", "h1/nic0")}
    watch.follow_carriers({"h1/nic0": True, "h2/nic0": True}, LINKS)
    assert [kind for _, kind, _ in events.told] == ["link_dead", "link_dead_over"]
    assert not watch.findings.current


def test_a_nic_whose_link_is_not_known_is_named_itself() -> None:
    events = _Events()
    watch = FaultWatch(events)
    watch.follow_carriers({"h9/nic0": False}, LINKS)
    assert events.told == [("h9", "nic_dead", None)]


def test_losses_over_a_link_that_then_loses_its_carrier_are_one_cause() -> None:
    bench = Bench(LeafSpine(Shape(leaves=2, spines=2, hosts_per_leaf=3), np.random.default_rng(1)))
    nic = "h0/nic0"
    both = [i for i, link in enumerate(bench.fabric.routes.links) if nic in link]
    for _ in bench.run(15, Trouble()):
        pass
    for _ in bench.run(10, Trouble(loss=dict.fromkeys(both, 1.0))):
        pass
    bench.watch.faults.follow_carriers({nic: False}, bench.watch.loads.routes.links)
    for _ in bench.run(30, Trouble(loss=dict.fromkeys(both, 1.0))):
        pass
    (finding,) = bench.watch.findings.current.values()
    assert finding.kind == "dead"
    assert [kind for kind, _ in bench.events] == ["link_silent", "link_silent_over", "link_dead"]


@pytest.mark.parametrize("seed", range(4))
def test_what_a_place_lost_that_nobody_could_name_is_over_once_the_place_is_known(seed: int) -> None:
    """While a link down from a spine is silent a path is traced anew: where it leads from its leaf on is not known."""
    rng = np.random.default_rng(seed)
    bench = Bench(LeafSpine(Shape(leaves=3, spines=2, hosts_per_leaf=2), rng))
    known = bench.fabric.routes
    down = [i for i, link in enumerate(known.links) if link.a.startswith("s") and not is_nic(link.b)]
    silent = int(rng.choice(down))
    name = next(name for name, links in known.paths.items() if silent in links)
    first = known.paths[name][0]
    beyond = DirectedLink(known.links[first].b, f"?{name.src}>{name.dst_addr}:{name.sport}")
    links = (*known.links, beyond)
    for _ in bench.run(30, Trouble()):
        pass
    bench.fabric.routes = Routes(2, links, {**known.paths, name: (first, len(known.links))})
    named = set()
    for _ in bench.run(40, Trouble(loss={silent: 1.0})):
        named |= {finding.subject.name for finding in bench.watch.findings.current.values()}
    assert f"{beyond.a} > {beyond.b}" in named
    bench.fabric.routes = Routes(3, links, known.paths)
    for _ in bench.run(60, Trouble()):
        pass
    assert bench.watch.findings.current == {}


def _clocks_told(aside: Callable[[float], Sequence[str]], seconds: float) -> list[tuple[float, str, str]]:
    """When which host's clock is said to be wrong, or to be right again, looked at ten times a second."""
    events = _Events()
    told: list[tuple[float, str, str]] = []
    watch = FaultWatch(events)
    for tick in range(round(seconds * 10)):
        watch.follow_clocks(aside(tick / 10), 100 + tick / 10)
        told += [(tick / 10, host, kind) for host, kind, _ in events.told[len(told) :]]
    return told


@pytest.mark.parametrize("begins_s", [0.3, 7.0])
def test_a_clock_that_stays_set_aside_is_a_finding_until_it_has_been_right_for_as_long(
    begins_s: float,
) -> None:
    ends_s = begins_s + 4 * WRONG_FOR_S
    told = _clocks_told(lambda now_s: ["h3"] if begins_s <= now_s < ends_s else [], 100.0)
    assert [(host, kind) for _, host, kind in told] == [("h3", "host_clock"), ("h3", "host_clock_over")]
    when_s = [at_s for at_s, _, _ in told]
    assert when_s == pytest.approx([begins_s + WRONG_FOR_S, ends_s + WRONG_FOR_S], abs=0.2)


@pytest.mark.parametrize("aside_s", [0.1, 1.0, 4.0, 8.0])
def test_clocks_that_are_found_anew_soon_are_no_findings(aside_s: float) -> None:
    def aside(now_s: float) -> list[str]:
        return [
            host for host, at_s in (("h1", 3.0), ("h2", 3.5), ("h1", 40.0)) if 0 <= now_s - at_s < aside_s
        ]

    assert _clocks_told(aside, 80.0) == []


def test_a_clock_that_is_wrong_again_and_again_is_a_finding_where_it_is_so_most_of_the_time() -> None:
    told = _clocks_told(
        lambda now_s: [host for host, share in (("h1", 0.8), ("h2", 0.3)) if now_s % 4 < 4 * share], 60.0
    )
    assert [(host, kind) for _, host, kind in told] == [("h1", "host_clock")]


def test_flapping_is_told_once_and_ends_when_it_is_calm() -> None:
    events = _Events()
    watch = FaultWatch(events)
    for i in range(20):
        watch.expire(10.0 * i)
        watch.follow_carriers({"h1/nic0": i % 2 == 1}, LINKS)
    kinds = [kind for _, kind, _ in events.told]
    assert kinds.count("link_flapping") == 1
    assert len(kinds) == MOST_CHANGES + 2
    assert [finding.kind for finding in watch.findings.current.values()] == ["flapping"]
    watch.expire(190.0 + CALM_S - 1)
    assert watch.findings.current
    watch.expire(190.0 + CALM_S + 1)
    assert not watch.findings.current
    assert events.told[-1][1] == "link_flapping_over"


def test_a_few_changes_an_hour_are_no_flapping() -> None:
    events = _Events()
    watch = FaultWatch(events)
    for i in range(40):
        watch.expire(i * HOUR_S / MOST_CHANGES)
        watch.follow_carriers({"h1/nic0": i % 2 == 1}, LINKS)
    assert "link_flapping" not in [kind for _, kind, _ in events.told]


class _Queues:
    """Queues as they are said to be."""

    def __init__(
        self, stands: dict[int, float], links: int = len(LINKS), of_late: Any = True, *, apart: bool = True
    ) -> None:
        self.queue_ns, self.of_late, self.apart = np.zeros((20, links)), of_late, apart
        for i, queue_ns in stands.items():
            self.queue_ns[:, i] = queue_ns

    def stands(self, _windows: int) -> Any:
        return (self.queue_ns[-1] > 0) & self.of_late

    def busy(self) -> Any:
        return self.queue_ns[-1] > 0

    def shows_apart(self, _link: DirectedLink, _windows: int) -> bool:
        return self.apart


def _loads(load_bps: dict[int, float], others_bps: float = 100e6) -> LinkLoads:
    load = np.full(len(LINKS), others_bps)
    for i, each in load_bps.items():
        load[i] = each
    nothing = np.full(len(LINKS), np.nan)
    sure = np.ones(len(LINKS), bool)
    return LinkLoads(routes=Routes(1, LINKS), load_bps=load, is_sure=sure, capacity_bps=nothing)


class _Watched:
    """A watch for slow links and hosts, what it found, and what of it holds."""

    def __init__(self) -> None:
        self.findings, self.opened = Findings(), list[str]()
        self.watch = DelayWatch(
            self._open,
            lambda finding, slow: setattr(finding, "subject", cable(slow.link)),
            lambda finding: self.findings.close(finding, 1.0),
        )

    @property
    def held(self) -> list[tuple[str, str]]:
        return [(each.kind, each.subject.name) for each in self.findings.current.values()]

    def see(self, windows: int, queues: "_Queues", loads: LinkLoads) -> list[tuple[str, str]]:
        """What holds after some windows."""
        for _ in range(windows):
            self.watch.step(queues, loads)  # type: ignore[arg-type]
        return self.held

    def _open(self, slow: Slow) -> Finding:
        self.opened.append(slow.kind)
        return self.findings.open(
            Finding(number=0, kind=slow.kind, subject=slow.subject, confidence=1.0, evidence=[], start_s=0.0)
        )


@pytest.mark.parametrize(
    ("stands", "load_bps", "found"),
    [
        ({6: 5e6}, {6: 40e6}, [("slow", "l1 > s0")]),
        ({6: 5e6, 7: 5e6}, {6: 40e6, 7: 40e6}, [("slow", "l1 - s0")]),
        ({6: 5e6}, {6: 6e6}, [("slow", "l1 > s0")]),
        ({6: 5e6}, {6: 95e6}, []),
        ({6: 5e6, 8: 5e6, 10: 5e6}, {}, []),
        ({0: 3e6}, {0: 20e6}, [("slow", "h0/nic0 > l1")]),
        ({0: 3e6}, {0: 1e6}, [("slow_sender", "h0")]),
        ({1: 3e6}, {1: 1e6}, [("slow_receiver", "h0")]),
        ({0: 50e3}, {0: 1e6}, []),
        ({6: 5e6}, {6: 0.0}, []),
    ],
)
def test_a_queue_that_stands_blames_who_carries_less_than_its_like(
    stands: dict[int, float], load_bps: dict[int, float], found: list[tuple[str, str]]
) -> None:
    watched, needed = _Watched(), SEEN_OWN_WINDOWS if 0 in stands or 1 in stands else SEEN_WINDOWS
    for _ in range(2):
        assert watched.see(needed - 1, _Queues(stands), _loads(load_bps)) == []
        assert watched.see(1, _Queues({}), _loads({})) == []
    assert watched.see(needed + 3, _Queues(stands), _loads(load_bps)) == found
    assert watched.see(OVER_WINDOWS + 1, _Queues({}), _loads({})) == []


def test_a_queue_that_only_paths_with_a_longer_one_show_blames_nobody() -> None:
    watched = _Watched()
    assert watched.see(50, _Queues({6: 5e6}, apart=False), _loads({6: 40e6})) == []
    assert watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6})) == [("slow", "l1 > s0")]


def test_a_slow_link_that_was_emptied_is_slow_until_it_carries_more_than_it_did() -> None:
    """The planner takes everything off it; later a little, then more, is put on it again."""
    watched, slow = _Watched(), [("slow", "l1 > s0")]
    assert watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6})) == slow
    for load_bps in (0.0, 30e6, 42e6):
        assert watched.see(3 * OVER_WINDOWS, _Queues({}), _loads({6: load_bps})) == slow
    assert watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6})) == slow
    assert watched.see(OVER_WINDOWS + 1, _Queues({}), _loads({6: 60e6})) == []
    assert watched.opened == ["slow"]


def test_a_link_that_carries_nearly_what_it_should_is_looked_at_for_longer() -> None:
    """As loads are told late while jobs come and go: a well link seemed slow for some windows, at 70 % of its like."""
    watched = _Watched()
    assert watched.see(SEEN_NEAR_WINDOWS - 1, _Queues({6: 5e6}), _loads({6: 65e6})) == []
    assert watched.see(1, _Queues({6: 5e6}), _loads({6: 65e6})) == [("slow", "l1 > s0")]


@pytest.mark.parametrize(
    ("every", "load_bps", "found"),
    [
        (2, 20e6, [("slow", "l1 > s0")]),
        (3, 16e6, [("slow", "l1 > s0")]),
        (2, 45e6, []),
        (3, 30e6, []),
        (5, 1e6, []),
        (2, 4e6, []),
    ],
)
def test_a_link_that_is_idle_now_and_then_is_slow_where_it_is_busier_than_its_load_explains(
    every: int, load_bps: float, found: list[tuple[str, str]]
) -> None:
    """Where what waits comes in bursts, no five windows in a row may see a queue that never was empty."""
    watched, loads = _Watched(), _loads({6: load_bps})
    for window in range(4 * WINDOWS):
        watched.see(1, _Queues({6: 5e6} if window % every == 0 else {}, of_late=False), loads)
    assert watched.held == found
    assert watched.see(OVER_WINDOWS + 1, _Queues({}), _loads({})) == []


@pytest.mark.parametrize("late", [5, 12, 20])
@pytest.mark.parametrize(("on", "off"), [(40, 60), (60, 40), (100, 400), (15, 35)])
def test_a_link_is_not_slow_because_its_load_is_told_late(late: int, on: int, off: int) -> None:
    """Flows at full rate begin and end, as those of an audit do: the queue shows at once, what they send a while later."""
    watched = _Watched()
    watched.see(2 * WINDOWS, _Queues({}), _loads({6: 0.0}))
    for window in range(2_000):
        is_busy, is_told = window % (on + off) < on, (window - late) % (on + off) < on and window >= late
        watched.see(
            1, _Queues({6: 5e6} if is_busy else {}, of_late=False), _loads({6: 90e6 if is_told else 0.0})
        )
    assert watched.opened == []


def test_how_busy_a_link_is_outlives_its_routes() -> None:
    watched, loads = _Watched(), _loads({6: 20e6})
    for window in range(4 * WINDOWS):
        number = window // 20
        routes = Routes(number, LINKS if number % 2 else LINKS[::-1])
        told = replace(loads, routes=routes, load_bps=loads.load_bps if number % 2 else loads.load_bps[::-1])
        link = 6 if number % 2 else len(LINKS) - 7
        watched.see(1, _Queues({link: 5e6} if window % 2 == 0 else {}, of_late=False), told)
    assert watched.held == [("slow", "l1 > s0")]


def test_a_link_that_nothing_comes_through_is_not_slow_as_well() -> None:
    watch, windows = FaultWatch(_Events()), cast("list[Window]", [None] * SEEN_OWN_WINDOWS)

    def found(*, carrier: bool) -> list[str]:
        watch.follow_carriers({"h0/nic0": carrier}, LINKS)
        queues = cast("QueueInference", _Queues({0: 5e6}))
        watch.step(windows, queues, _loads({0: 20e6}), now_s=1.0, lag_s=0.0)
        return [finding.kind for finding in watch.findings.current.values()]

    assert [found(carrier=False), found(carrier=False), found(carrier=True)] == [["dead"], ["dead"], ["slow"]]


def test_a_link_whose_load_is_in_doubt_is_not_seen_to_be_well() -> None:
    watched, doubtful = _Watched(), _loads({})
    doubtful.is_sure[:] = False
    held = watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6}))
    assert watched.see(3 * OVER_WINDOWS, _Queues({}), doubtful) == held != []


@pytest.mark.parametrize(("link", "load_bps"), [(0, 1e6), (1, 1e6), (1, 20e6), (6, 40e6)])
def test_a_queue_blames_nobody_while_what_the_link_carries_is_in_doubt(link: int, load_bps: float) -> None:
    """As while the agent of a host is away whose queue pairs send on."""
    watched, doubtful = _Watched(), _loads({link: load_bps})
    doubtful.is_sure[link] = False
    assert watched.see(3 * SEEN_OWN_WINDOWS, _Queues({link: 5e6}), doubtful) == []


def test_what_was_seen_of_a_link_before_it_was_emptied_counts_when_it_is_used_again() -> None:
    watched = _Watched()
    assert watched.see(SEEN_WINDOWS - 1, _Queues({6: 5e6}), _loads({6: 40e6})) == []
    assert watched.see(100, _Queues({}), _loads({6: 0.0})) == []
    assert watched.see(1, _Queues({6: 5e6}), _loads({6: 40e6})) == [("slow", "l1 > s0")]
    forgetful = _Watched()
    forgetful.see(SEEN_WINDOWS - 1, _Queues({6: 5e6}), _loads({6: 40e6}))
    forgetful.see(REMEMBERED_WINDOWS + 1, _Queues({}), _loads({6: 0.0}))
    assert forgetful.see(1, _Queues({6: 5e6}), _loads({6: 40e6})) == []


def test_a_slow_link_of_which_nothing_is_seen_any_more_is_let_go_in_the_end() -> None:
    watched = _Watched()
    watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6}))
    assert watched.see(UNKNOWN_WINDOWS + 1, _Queues({}), _loads({6: 0.0})) == []


def test_a_slow_link_that_no_path_crosses_any_more_is_let_go() -> None:
    watched = _Watched()
    watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6}))
    fewer = replace(_loads({}), routes=Routes(2, LINKS[:6]), load_bps=np.zeros(6), is_sure=np.ones(6, bool))
    assert watched.see(OVER_WINDOWS + 1, _Queues({}, links=6), fewer) == []


@pytest.mark.parametrize("link", [0, 1])
def test_a_host_that_sends_now_a_little_more_now_less_than_an_idle_one_is_found_once(link: int) -> None:
    """Near the share at which a host is told from its link."""
    watched = _Watched()
    for number in range(10 * SEEN_OWN_WINDOWS):
        watched.see(1, _Queues({link: 3e6}), _loads({link: 12e6 if number % 20 < 10 else 8e6}))
    assert len(watched.opened) == len(watched.held) == 1


def test_both_directions_of_a_link_that_is_slow_are_one_cause() -> None:
    watched = _Watched()
    assert watched.see(SEEN_WINDOWS, _Queues({6: 5e6}), _loads({6: 40e6})) == [("slow", "l1 > s0")]
    assert watched.see(SEEN_WINDOWS, _Queues({7: 5e6}), _loads({6: 0.0, 7: 40e6})) == [("slow", "l1 - s0")]
    assert watched.see(2 * OVER_WINDOWS, _Queues({}), _loads({7: 0.0})) == [("slow", "l1 - s0")]
    assert watched.see(OVER_WINDOWS + 1, _Queues({}), _loads({})) == []
    assert watched.opened == ["slow"]


def test_what_is_slow_is_named_by_whose_it_is_alone() -> None:
    """Another manager does not know all that its links carry."""
    events, queues, loads = _Events(), _Queues({6: 5e6}), _loads({6: 40e6})
    watch = FaultWatch(events)
    for is_ours, told in ((False, []), (True, ["link_slow"])):
        watch.losses.decides = lambda named, is_ours=is_ours: is_ours and named.subject.name == "l1 - s0"
        for _ in range(SEEN_WINDOWS):
            watch.step(cast(Any, [None]), cast(Any, queues), loads, now_s=1.0, lag_s=0.0)
        assert [kind for _, kind, _ in events.told] == told


def test_what_is_not_known_for_a_while_is_not_well() -> None:
    """A slow host's clock may not be known well enough to tell the queue, for as long as it is slow."""
    watched, found = _Watched(), [("slow_sender", "h0")]
    assert watched.see(SEEN_OWN_WINDOWS, _Queues({0: 3e6}), _loads({0: 1e6})) == found
    unknown = _Queues({})
    unknown.queue_ns[:, 0] = np.nan
    assert watched.see(3 * OVER_WINDOWS, unknown, _loads({0: 1e6})) == found
    assert watched.see(OVER_WINDOWS + 1, _Queues({}), _loads({})) == []


def test_what_one_link_was_once_seen_to_carry_blames_no_other() -> None:
    loads = _loads({7: 72e6}, others_bps=80e6)
    loads.capacity_bps[[9, 11]] = 145e6, 100e6
    queues = _Queues({7: 6e6})
    assert _Watched().see(SEEN_OWN_WINDOWS + 1, queues, loads) == []


def test_a_link_has_one_name_whichever_way_it_is_given() -> None:
    link = DirectedLink("l1", "h1/nic0")
    assert cable(link) == cable(DirectedLink("h1/nic0", "l1"))
    assert cable(link).name == "h1/nic0 - l1"
    assert direction(link).name == "l1 > h1/nic0"


def _state() -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.hear_hello(hello("h0"), 0.0)
    loads = _loads({6: 40e6})
    known = np.zeros(len(LINKS))
    queue = known.copy()
    queue[8] = 7e6
    state.watch.loads = LinkLoads(
        routes=loads.routes,
        queue_ns=queue,
        queue_p50_ns=queue,
        queue_p99_ns=queue,
        load_bps=loads.load_bps,
        capacity_bps=loads.capacity_bps,
        likely_capacity_bps=known + 100e6,
        stands=queue > 0,
        loss=known,
    )
    state.faults.open(
        Finding(
            number=0,
            kind="silent",
            subject=cable(DirectedLink("l1", "s0")),
            confidence=0.5,
            evidence=["90 of 90 probes over it were lost"],
            start_s=1.0,
            also=(Subject("link", "l2 - s0"),),
            loss=1.0,
        )
    )
    return state


def test_trouble_comes_first_then_long_queues() -> None:
    rows = link_views.links(_state())["links"]
    assert [(row["a"], row["b"], row["state"]) for row in rows[:4]] == [
        ("l1", "s0", "silent"),
        ("s0", "l1", "silent"),
        ("l1", "s1", "full"),
        ("h0/nic0", "l1", "ok"),
    ]
    assert rows[0]["share"] == pytest.approx(0.4)
    assert rows[0]["capacity_bps"] is None


@pytest.mark.parametrize("sort", link_views.SORTS)
def test_links_within_80_columns(sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = link_views.links(_state(), sort=sort, limit=5)

    class Client:
        def __init__(self, _url: str | None) -> None:
            pass

        def get(self, path: str, query: Any = None) -> Any:
            assert (path, query) == ("/v1/link", {"sort": sort, "limit": 5})
            return answer

    monkeypatch.setattr(link_command, "ManagerClient", Client)
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["link", "--sort", sort, "--limit", "5"])
    assert shown.exit_code == 0, shown.output
    assert "5 of 12 links" in shown.output
    assert "silent: l1 - s0 or l2 - s0 (50%)" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    assert link_command.SORTS == link_views.SORTS
