"""`cwdp lab run demo`: a fabric whose clocks are set wrong on purpose, put right and watched under load."""

import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import console, progress
from cwdp.errors import LabError
from tools.lab.fleet import Fleet
from tools.lab.lab import Lab
from tools.lab.params import SHARE
from tools.lab.session import SETTLE_S, Traffic, lab_for_run, sample, wait_for_lock
from tools.lab.topology import LabSpec
from tools.lab.truth import Reading, Truth

NAME = "demo"
IDLE_S = 15.0
LOADED_S = 40.0
REDRAW_S = 1.0
PLAIN_REDRAW_S = 10.0
WORST_SHOWN = 4
PROMISED_ERROR_NS = 1_000.0
LEAST_COVERED = 0.999


@dataclass
class Phase:
    """What was seen in one part of the demonstration."""

    title: str
    readings: list[Reading] = field(default_factory=list)
    paths: list[dict[str, Any]] = field(default_factory=list)

    @property
    def errors_ns(self) -> NDArray[np.float64]:
        """Absolute errors of all hosts, shape (samples, hosts)."""
        return np.array([np.abs(reading.error_ns) for reading in self.readings])

    @property
    def covered(self) -> float:
        """The share of samples in which the truth lay within the bound claimed."""
        bounds = np.array([reading.bound_ns for reading in self.readings])
        return float((self.errors_ns <= bounds).mean())

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The paths with a one-way delay both ways."""
        return [path for path in self.paths if None not in (path["fwd_p50_ns"], path["rev_p50_ns"])]

    def median_p99_ns(self) -> float:
        """The 99th percentile of the delay of the path in the middle."""
        return float(np.median([path["fwd_p99_ns"] for path in self.measured]))


@click.command()
@click.option(
    "--load", "share", type=SHARE, default="0.8", show_default=True, help="Share of the links' rate to fill."
)
@click.option("--seed", default=1, show_default=True, help="Draws the hosts' clocks.")
def demo(share: float, seed: int) -> None:
    """Show the whole way from wrong clocks to every path's one-way delay; ends by itself after a minute."""
    with lab_for_run(NAME, LabSpec(name=NAME, seed=seed)) as lab, Fleet(lab) as fleet, Truth(lab) as truth:
        start = wait_for_lock(fleet, truth)
        progress(f"clocks {start.offsets_ns / 1e9:.1f} s apart came within 1 us in {start.locked_s:.2f} s")
        settling, idle, loaded = Phase("settling"), Phase("idle"), Phase(f"links {share:.0%} loaded")
        with _Screen(lab, ManagerClient(f"unix://{fleet.socket}")) as screen:
            _watch(settling, SETTLE_S, fleet, truth, screen)
            _watch(idle, IDLE_S, fleet, truth, screen)
            with Traffic(lab, share, LOADED_S + REDRAW_S):
                _watch(loaded, LOADED_S, fleet, truth, screen)
    failures = check(idle, loaded)
    console().print(_summary(idle, loaded))
    if failures:
        raise LabError("the demonstration did not show what it promises:\n  " + "\n  ".join(failures))
    console().print("Every host on one timeline, every path's one-way delay measured.")


def check(idle: Phase, loaded: Phase) -> list[str]:
    """What was promised and not seen."""
    failures = []
    for phase in (idle, loaded):
        missing = len(phase.paths) - len(phase.measured)
        if missing or not phase.paths:
            failures.append(f"{phase.title}: {missing} of {len(phase.paths)} paths have no one-way delay")
            continue
        p99 = float(np.nanpercentile(phase.errors_ns, 99))
        if not p99 <= PROMISED_ERROR_NS:
            failures.append(
                f"{phase.title}: clocks are {p99:.0f} ns off at p99, more than {PROMISED_ERROR_NS:.0f}"
            )
        if phase.covered < LEAST_COVERED:
            failures.append(
                f"{phase.title}: the claimed bound held in {phase.covered:.2%} of the samples only"
            )
    if not failures and loaded.median_p99_ns() <= idle.median_p99_ns():
        failures.append("the load made no path slower")
    return failures


class _Screen:
    """Draws from the manager's answers and the truth: in place on a terminal, else now and then."""

    def __init__(self, lab: Lab, manager: ManagerClient) -> None:
        self._lab = lab
        self._manager = manager
        self._console: Console = console()
        self._live = Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() else None
        self._drawn = -PLAIN_REDRAW_S

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def paths(self) -> list[dict[str, Any]]:
        """Every path as the manager knows it now."""
        paths: list[dict[str, Any]] = self._manager.get("/v1/owd")["paths"]
        return paths

    def show(self, phase: Phase, left_s: float) -> None:
        """Draw, if it is time to."""
        now = time.monotonic()
        if now - self._drawn < (REDRAW_S if self._live else PLAIN_REDRAW_S):
            return
        self._drawn = now
        phase.paths = self.paths()
        drawn = self._draw(phase, left_s)
        if self._live:
            self._live.update(drawn, refresh=True)
        else:
            self._console.print(drawn, "")

    def _draw(self, phase: Phase, left_s: float) -> RenderableType:
        """One screen."""
        title = Text(f"{phase.title}: {len(phase.measured)} paths, {left_s:.0f} s to go", style="bold")
        parts: list[RenderableType] = [
            title,
            "",
            "clocks against the truth",
            self._clocks(phase.readings[-1]),
        ]
        if phase.measured:
            parts += [
                "",
                "one-way delay from row to column, median over the paths, us",
                _matrix(phase.measured),
            ]
            parts += ["", "slowest paths", _worst(phase.measured)]
        return Group(*parts)

    def _clocks(self, reading: Reading) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("HOST", "SET WRONG BY", "DRIFTING", "ERROR NOW", "BOUND CLAIMED"):
            table.add_column(column, justify="left" if column == "HOST" else "right")
        for host, error, bound in zip(self._lab.hosts, reading.error_ns, reading.bound_ns, strict=True):
            clock = host.clock
            table.add_row(
                host.name,
                f"{clock.offset_ns / 1e9:+.6f} s",
                f"{clock.drift_ppb / 1e3:+.1f} ppm",
                f"{error:+.1f} ns",
                f"{bound:.0f} ns",
            )
        return table


def _watch(phase: Phase, seconds: float, fleet: Fleet, truth: Truth, screen: _Screen) -> None:
    end = time.monotonic() + seconds

    def take(reading: Reading) -> None:
        phase.readings.append(reading)
        screen.show(phase, max(0.0, end - time.monotonic()))

    sample(truth, seconds, fleet, take)
    phase.paths = screen.paths()


def _matrix(paths: list[dict[str, Any]]) -> Table:
    """Median over the paths of each pair of hosts."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in paths:
        src, dst = path["src"].split("/")[0], path["dst"].split("/")[0]
        cells[src, dst].append(path["fwd_p50_ns"])
        cells[dst, src].append(path["rev_p50_ns"])
    hosts = sorted({host for pair in cells for host in pair})
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for host in hosts:
        table.add_column(host, justify="right")
    for src in hosts:
        row = (f"{np.median(cells[src, dst]) / 1e3:.1f}" if (src, dst) in cells else "" for dst in hosts)
        table.add_row(src, *row)
    return table


def _worst(paths: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("PATH", "PORT", "P50 US", "P99 US", "LOSS", "QUEUED"):
        table.add_column(column, justify="left" if column == "PATH" else "right")
    for path in sorted(paths, key=lambda p: -p["fwd_p99_ns"])[:WORST_SHOWN]:
        table.add_row(
            f"{path['src']} > {path['dst']}",
            str(path["sport"]),
            f"{path['fwd_p50_ns'] / 1e3:.1f}",
            f"{path['fwd_p99_ns'] / 1e3:.1f}",
            f"{path['loss'] or 0:.2%}",
            f"{path['queued_share'] or 0:.0%}",
        )
    return table


def _summary(idle: Phase, loaded: Phase) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "PATHS", "ERROR P50", "ERROR P99", "BOUND HELD", "OWD P50", "OWD P99"):
        table.add_column(column, justify="right" if column else "left")
    for phase in (idle, loaded):
        if not phase.measured:
            table.add_row(phase.title, "0", *["-"] * 5)
            continue
        p50, p99 = np.nanpercentile(phase.errors_ns, (50, 99))
        owd_p50 = np.median([path["fwd_p50_ns"] for path in phase.measured])
        table.add_row(
            phase.title,
            str(len(phase.measured)),
            f"{p50:.1f} ns",
            f"{p99:.1f} ns",
            f"{phase.covered:.2%}",
            f"{owd_p50 / 1e3:.1f} us",
            f"{phase.median_p99_ns() / 1e3:.1f} us",
        )
    return table
