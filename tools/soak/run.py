"""A soak from beginning to end."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any

from cwdp.cli.output import progress
from cwdp.errors import LabError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.clocks import ClockKind
from tools.experiments.fleets import wait_for_paths
from tools.experiments.runs import IdleShare
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import lab_for_run, wait_for_lock
from tools.lab.network import netns
from tools.lab.truth.clocks import Truth
from tools.lab.truth.documents import StoredDocuments
from tools.roce.generator import Generator
from tools.soak import traffic, verdicts
from tools.soak.play import Play
from tools.soak.schedule import draw
from tools.soak.stage import Stage
from tools.soak.summary import Watches, summary
from tools.soak.traffic import Steered
from tools.soak.troubles import Trouble
from tools.soak.verdicts import Check
from tools.soak.watches import agents, bus
from tools.soak.watches.clocks import ClockWatch, SteeringWatch
from tools.soak.watches.findings import FindingWatch
from tools.soak.watches.holdings import HoldingsWatch
from tools.soak.watches.leaders import LeaderWatch
from tools.waiting import wait_for

SNAPSHOT_S = 0.5
STEERED_S = 15.0
PROBES = ProbeSettings(pairs_per_s=200.0, degree=4)
PULSE_MS, DEAD_AFTER_MS = 10.0, 100.0

Json = dict[str, Any]


def spec_for(name: str, seed: int, clocks: ClockKind) -> LabSpec:
    """The lab: three leaves, three spines, six hosts, two managers, three bus servers."""
    return LabSpec(
        name=name,
        leaves=3,
        spines=3,
        hosts_per_leaf=2,
        rate_bps=40_000_000,
        spine_rate_bps=20_000_000,
        queue_bytes=40 * 1024,
        spine_queue_bytes=40 * 1024,
        mtu=4200,
        seed=seed,
        clocks=clocks,
        managers=2,
        servers=3,
    )


def soak(spec: LabSpec, minutes: float, seed: int, *, calm: bool = False) -> Json:
    """Run one, a calm one without any trouble; what `--json` prints.

    Raises:
        CwdpError: the lab, its fleet or a trouble could not be had.
    """
    seconds = 60 * minutes
    with lab_for_run(spec.name, spec) as lab:
        for link in lab.topology.links:
            faults.drop(lab.name, link, 0.0)
        led = traffic.steered(lab)
        with _fleet(lab) as fleet:
            schedule = [] if calm else draw(lab.topology, seconds, seed)
            result = _run(Stage(lab, fleet), led, seconds, schedule)
    result |= {"seed": seed, "minutes": minutes}
    left = _left(lab)
    result["checks"].append(asdict(verdicts.plain("all is taken away", left)))
    result["trouble_count"] = len(result["troubles"])
    result["failed"] = [check["what"] for check in result["checks"] if not check["passed"]]
    result["failed_count"] = len(result["failed"])
    return result


@contextmanager
def _fleet(lab: Lab) -> Iterator[Fleet]:
    roce = RoceConfig(dead_after_ms=DEAD_AFTER_MS, hold_down_max_ms=2_000.0, sample_every=16)
    planner = PlannerSettings(enabled=True)
    with (
        Fleet(lab, PROBES, roce=roce, pulse_interval_ms=PULSE_MS, planner=planner) as fleet,
        Truth(lab) as truth,
    ):
        start = wait_for_lock(fleet, truth)
        progress(f"the fleet is up; clocks agreed after {start.locked_s:.1f} s")
        wait_for_paths(fleet)
        yield fleet


def _run(stage: Stage, led: Steered, seconds: float, schedule: Sequence[Trouble]) -> Json:
    """A soak on a fleet that is up."""
    idle = IdleShare()
    _steer(stage, led)
    stage.begin()
    with ExitStack() as stack:
        watches = _watches(stage, led, stack)
        documents = stack.enter_context(StoredDocuments(stage.lab, stage.fleet.bus))
        flows = traffic.flows(stage.lab, led.flow)
        generator = stack.enter_context(Generator(flows, stage.lab.popen, stage.lab.run_dir, SNAPSHOT_S))
        generator.start()
        played = Play(stage, schedule)
        played.until(seconds, watches.check)
        sent, end_s = generator.stop(), stage.now_s
        progress("all trouble is over; looking whether everything is whole")
        whole = [
            *_whole(stage, stage.start_unix_s + end_s),
            verdicts.plain("no document went back to an earlier leader's", documents.went_back()),
            verdicts.plain("troubles could be made and undone", played.errors),
        ]
    moved = traffic.judge(sent, led, played.done, stage.start_s)
    starts = agents.starts(stage)
    return summary(stage.lab, watches, played.done, moved, whole, starts=starts, seconds=seconds) | {
        "lab": stage.lab.spec.describe(),
        "clock_kind": stage.lab.spec.clocks,
        "idle_share": round(idle.read(), 3),
        "load_average": os.getloadavg()[0],
        "deaths": stage.fleet.restarts,
    }


def _watches(stage: Stage, led: Steered, stack: ExitStack) -> Watches:
    leaders = [stack.enter_context(LeaderWatch(stage, name)) for name in stage.fleet.managers]
    of_clocks, of_steering = (stack.enter_context(Truth(stage.lab)) for _ in range(2))
    return Watches(
        leaders,
        stack.enter_context(FindingWatch(stage, leaders)),
        stack.enter_context(ClockWatch(stage, of_clocks)),
        stack.enter_context(SteeringWatch(stage, of_steering, led.flow.source.host, led.sports)),
        stack.enter_context(HoldingsWatch(stage)),
    )


def _steer(stage: Stage, led: Steered) -> None:
    source = led.flow.source.host
    stage.change(lambda leader: leader.put("/v1/steer", led.wish))
    with Truth(stage.lab) as truth:
        if not wait_for(lambda: truth.watched_sports(source) >= led.sports, STEERED_S):
            raise LabError(f"{source} did not steer within {STEERED_S:.0f} s", "Read its log.")


def _whole(stage: Stage, until_s: float) -> list[Check]:
    """What must be so again once all trouble is over."""
    differ = bus.histories_differ(stage, stage.start_unix_s, until_s)
    return [
        verdicts.plain("hosts up, synced, with the same keys", bus.unwell(stage)),
        verdicts.plain("every bus server has everything", bus.behind(stage)),
        verdicts.plain("managers' histories tell the same", differ),
    ]


def _left(lab: Lab) -> list[str]:
    """What a lab that was taken away has left behind."""
    left = [path.name for path in netns.RUN_DIR.glob(f"cw-{lab.name}-*")]
    with suppress(FileNotFoundError):
        left += [str(lab.run_dir)] if any(lab.run_dir.iterdir()) else []
    return left
