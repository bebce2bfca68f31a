"""`cwdp lab run demo`: clocks put right, two jobs that collide taken apart, a link that dies under load.

Every promise that it makes is checked against what was measured; its exit status says whether all were kept.
"""

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import click
import numpy as np
from rich.console import Console
from rich.rule import Rule

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import console
from cwdp.errors import LabError
from manager.config import PlannerSettings
from tools.clocks import ClockKind
from tools.experiments import measure
from tools.experiments.contention.model import QUEUE_BYTES, Setting, make_setting
from tools.experiments.failover.model import Cut, Kind, draw_cut
from tools.experiments.fleets import PulseSettings, running_fleet
from tools.experiments.options import rate_option
from tools.experiments.runs import SNAPSHOT_S, links_in_use
from tools.experiments.taken import links_taken, without_backup
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import lab_for_run, sample
from tools.lab.params import CLOCKS
from tools.lab.truth.clocks import Truth
from tools.roce.generator import Generator

NAME = "demo"
CLOCKS_S = 4.0
BEFORE_S = 5.0
PLACED_WITHIN_S = 20.0
"""From the planner's start: the manager is started anew for it, and hears of everything first."""

AFTER_S = 5.0
BACKED_WITHIN_S = 20.0
STEADY_S = 2.0
"""From when all queue pairs have backups."""

DARK_S = 2.5
HEALED_S = 4.0
WATCHED_S = 3.0
"""Goodput shown is that of the last few seconds."""

RATE_BPS = 20_000_000
MTU = 1024
OFFERED = 0.75
"""Of a host's link: what the best placement leaves free is enough for pulses, which take 3 % of it."""

WINDOW = 8
"""Five queue pairs that collide queue for 25 ms."""

SURVIVED_OFFERED, SURVIVED_WINDOW = 0.4, 16
"""What the links that are left can carry, wherever the backups lead; and a window that is not used up, and so noticed
by nobody, before a path is given up."""

PULSES = PulseSettings(interval_ms=5.0, dead_after_ms=10.0)
"""Rarer than usual: every 2 ms they would take all of a small machine's processors."""

CLOCK_ERROR_NS = 1_000.0
COVERED_SHARE = 0.999
OPTIMUM_SHARE = 0.9
STALL_NS = 30_000_000

LOSS_EVENTS = ("link_silent", "link_lossy")
SHOWN_ROWS = 6


@dataclass
class Promises:
    """What was promised, and whether it was seen."""

    out: Console
    broken: list[str] = field(default_factory=list)

    def check(self, kept: bool, what: str) -> None:
        """Show what was measured, and remember it if it is not as promised."""
        self.out.print(f"[green]ok[/] {what}" if kept else f"[red]not as promised:[/] {what}")
        if not kept:
            self.broken.append(what)


@click.command()
@click.option(
    "--seed", default=1, show_default=True, help="Draws clocks, queue pairs and the link that dies."
)
@rate_option(RATE_BPS, "Of hosts' links.")
@CLOCKS
def demo(seed: int, rate: int, clocks: ClockKind) -> None:
    """Show clocks put right, colliding jobs taken apart and a dead link survived; ends by itself in 90 s."""
    spec = LabSpec(
        name=NAME,
        rate_bps=rate,
        queue_bytes=QUEUE_BYTES,
        spine_queue_bytes=QUEUE_BYTES,
        seed=seed,
        clocks=clocks,
    )
    colliding, surviving = (
        make_setting(spec, spine_rate_bps=None, slow_share=1.0, offered=offered, mtu=MTU, window=window)
        for offered, window in ((OFFERED, WINDOW), (SURVIVED_OFFERED, SURVIVED_WINDOW))
    )
    promises = Promises(console())
    with (
        lab_for_run(NAME, colliding.spec) as lab,
        running_fleet(lab, planner=False, pulses=PULSES) as fleet,
    ):
        shown = _Demonstration(fleet, promises)
        shown.clocks()
        with _Jobs(lab, colliding, seed) as jobs:
            shown.collision(jobs)
            shown.placement(jobs)
        with _Jobs(lab, surviving, seed + 1) as jobs:
            shown.dead_link(jobs, seed)
    if promises.broken:
        raise LabError(
            "the demonstration did not show what it promises:\n  " + "\n  ".join(promises.broken),
            "Is the machine too busy? Stop what else runs, and try again.",
        )
    promises.out.print("Everything was as promised.")


class _Jobs:
    """Two jobs that send, as a context: from entry until they are stopped."""

    def __init__(self, lab: Lab, setting: Setting, seed: int) -> None:
        self.setting, self.flows = setting, setting.flows(seed)
        self._generator = Generator(self.flows, lab.popen, lab.run_dir, SNAPSHOT_S)

    def __enter__(self) -> Self:
        self._generator.__enter__()
        self._generator.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._generator.__exit__(kind, error, trace)

    def stop(self) -> measure.Result:
        """Stop at once; what came of it."""
        return self._generator.stop()

    def slowest_share(self) -> float:
        """The slowest queue pair's goodput of late, of the best possible."""
        flows = [{"id": flow.id} for flow in self.flows]
        timeline = self._generator.timeline()
        deliveries = measure.Deliveries(
            {"start_ns": self._generator.start_ns, "flows": flows, "timeline": timeline}
        )
        end_ns = deliveries.end_ns
        each_bps = deliveries.mean_bps(max(0.0, end_ns - WATCHED_S * 1e9), end_ns)
        return float(each_bps.min()) / self.setting.optimum_bps

    def goodput(self) -> str:
        """The slowest member's, for people."""
        share = self.slowest_share()
        best_bps = self.setting.optimum_bps * self.setting.transfers
        return f"{share * best_bps / 1e6:.1f} Mbit/s, {share:.0%} of the best possible"


class _Demonstration:
    """The parts of the demonstration, in their order."""

    def __init__(self, fleet: Fleet, promises: Promises) -> None:
        self._lab, self._fleet = fleet.lab, fleet
        self._promises, self._out = promises, promises.out

    def clocks(self) -> None:
        """The clocks that were set seconds apart, against the truth."""
        self._title("Clocks, set seconds apart, agree, and the fabric is known")
        self._show("clock")
        self._show("fabric")
        with Truth(self._lab) as truth, self._out.status("watching the clocks"):
            error_ns, bound_ns = sample(truth, CLOCKS_S, self._fleet)
        p99 = float(np.nanpercentile(np.abs(error_ns), 99))
        covered = float((np.abs(error_ns) <= bound_ns).mean())
        self._promises.check(
            p99 <= CLOCK_ERROR_NS and covered >= COVERED_SHARE,
            f"clocks are {p99:.0f} ns off the truth at p99, within the bound claimed in {covered:.2%} of samples",
        )

    def collision(self, jobs: _Jobs) -> None:
        """Two jobs where ECMP puts them."""
        self._title("Two all-to-all jobs start, and ECMP has some of their queue pairs collide")
        self._wait(BEFORE_S, "watching the jobs")
        self._show("link", "--limit", str(SHOWN_ROWS))
        self._out.print(f"slowest member: {jobs.goodput()}")

    def placement(self, jobs: _Jobs) -> None:
        """The same jobs where cwdp puts them."""
        self._title("cwdp may place queue pairs now")
        before = jobs.slowest_share()
        self._fleet.plan(PlannerSettings())
        deadline = time.monotonic() + PLACED_WITHIN_S
        while jobs.slowest_share() < OPTIMUM_SHARE and time.monotonic() < deadline:
            self._wait(0.5, "waiting for the planner")
        self._wait(AFTER_S, "watching the jobs")
        self._show("link", "--limit", str(SHOWN_ROWS))
        self._show("event", "--since", "30s")
        after = jobs.slowest_share()
        self._promises.check(
            after >= OPTIMUM_SHARE and after >= before,
            f"slowest member: {jobs.goodput()}, {after / before:.2f} times what it had",
        )

    def dead_link(self, jobs: _Jobs, seed: int) -> None:
        """A link in use goes silent under load, and is mended."""
        self._title("A link goes silent under load")
        faults.prepare_silence(self._lab.name, self._lab.topology)
        self._wait_for_backups(jobs)
        used = links_in_use(self._lab, jobs.setting.flow_bps / 2)
        cut = draw_cut(Kind.SILENT, used, self._lab.topology, random.Random(seed))
        before = jobs.slowest_share()
        taken = links_taken(self._lab, jobs.flows)
        cut_ns, mended_ns = self._cut(cut)
        dark_share = jobs.slowest_share()
        self._wait(HEALED_S, "watching the jobs")
        self._show("event", "--since", "15s")
        self._judge_name(cut)
        healed = jobs.slowest_share()
        result = jobs.stop()
        died = [flow for flow in result["flows"] if cut.hits(taken[flow["id"]])]
        self._judge_stalls(cut, [measure.stall_ns(flow, cut_ns, mended_ns) for flow in died])
        failed = result["total"]["failed"]
        self._promises.check(failed == 0, f"{failed} queue pairs died")
        self._promises.check(
            healed >= OPTIMUM_SHARE * before,
            f"slowest member: {before:.0%} of the best possible before, {dark_share:.0%} with three quarters of the "
            f"spines' links, {healed:.0%} after",
        )

    def _wait_for_backups(self, jobs: _Jobs) -> None:
        deadline = time.monotonic() + BACKED_WITHIN_S
        while (lacking := without_backup(self._lab, jobs.flows)) and time.monotonic() < deadline:
            self._wait(0.25, "waiting until queue pairs that have just started have backups")
        self._promises.check(not lacking, "every queue pair between leaves has a backup, both ways")
        self._wait(STEADY_S, "watching the jobs")

    def _cut(self, cut: Cut) -> tuple[int, int]:
        cut_ns = time.monotonic_ns()
        cut.make(self._lab.name)
        self._out.print(f"{cut.shown} drops everything now")
        try:
            self._wait(DARK_S, "watching the jobs")
        finally:
            mended_ns = time.monotonic_ns()
            cut.mend(self._lab.name)
        self._out.print(f"{cut.shown} is mended")
        return cut_ns, mended_ns

    def _judge_name(self, cut: Cut) -> None:
        """What the manager called it."""
        events = ManagerClient(f"unix://{self._fleet.socket}").get("/v1/events")["events"]
        told = {event["kind"] for event in events if event["kind"] in LOSS_EVENTS}
        called = " and ".join(sorted(kind.removeprefix("link_") for kind in told)) or "nothing"
        self._promises.check(told == {"link_silent"}, f"{cut.shown} was called {called}")

    def _judge_stalls(self, cut: Cut, stalls_ns: Sequence[int]) -> None:
        """What the cut cost those whose path died."""
        longest_ns = max(stalls_ns, default=0)
        self._promises.check(
            bool(stalls_ns) and longest_ns <= STALL_NS,
            f"{cut.shown} was on the path of {len(stalls_ns)} queue pairs: they stood still for "
            f"{longest_ns / 1e6:.0f} ms at most, retransmission included",
        )

    def _title(self, text: str) -> None:
        self._out.print()
        self._out.print(Rule(text, align="left") if self._out.is_terminal else f"== {text}")

    def _wait(self, seconds: float, what: str) -> None:
        with self._out.status(what):
            time.sleep(seconds)

    def _show(self, *command: str) -> None:
        """What the operator sees."""
        self._out.print(f"$ cwdp {' '.join(command)}", style="bold", markup=False)
        argv = [sys.executable, "-m", "cwdp", *command, "--manager", f"unix://{self._fleet.socket}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        self._out.print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False)
