"""Findings that do not come from losses: carriers, clocks, flapping, standing queues; and how they are shown."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import hello
from standing import LINKS, Events, loads_of

from cwdp.cli import main
from cwdp.cli.cluster import link as link_command
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink, Routes, is_nic
from manager.faults.clock_watch import WRONG_FOR_S
from manager.faults.dead_links import localised
from manager.faults.finding import Finding, Subject, cable, direction
from manager.faults.flaps import CALM_S, HOUR_S, MOST_CHANGES
from manager.faults.watch import FaultWatch
from manager.links.loads import LinkLoads
from manager.state import FleetState
from manager.view import link_views
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench


def test_a_link_without_carrier_is_dead_until_it_has_one() -> None:
    events = Events()
    watch = FaultWatch(events)
    watch.follow_carriers({"h1/nic0": True, "h2/nic0": True}, LINKS)
    watch.follow_carriers({"h1/nic0": False, "h2/nic0": True}, LINKS)
    watch.follow_carriers({"h1/nic0": False, "h2/nic0": True}, LINKS)
    assert localised(watch.findings) == {("h1/nic0", "l1"), ("l1", "h1/nic0")}
    watch.follow_carriers({"h1/nic0": True, "h2/nic0": True}, LINKS)
    assert [kind for _, kind, _ in events.told] == ["link_dead", "link_dead_over"]
    assert not watch.findings.current


def test_a_nic_whose_link_is_not_known_is_named_itself() -> None:
    events = Events()
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
    events = Events()
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
    events = Events()
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
    events = Events()
    watch = FaultWatch(events)
    for i in range(40):
        watch.expire(i * HOUR_S / MOST_CHANGES)
        watch.follow_carriers({"h1/nic0": i % 2 == 1}, LINKS)
    assert "link_flapping" not in [kind for _, kind, _ in events.told]


def test_a_link_has_one_name_whichever_way_it_is_given() -> None:
    link = DirectedLink("l1", "h1/nic0")
    assert cable(link) == cable(DirectedLink("h1/nic0", "l1"))
    assert cable(link).name == "h1/nic0 - l1"
    assert direction(link).name == "l1 > h1/nic0"


def _state() -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.hear_hello(hello("h0"), 0.0)
    loads = loads_of({6: 40e6})
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
