"""Has queue pairs of a lab send, breaks something once and mends it: for every arm and cut of `failover`."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cwdp.cli.output import progress
from tools.experiments import measure
from tools.experiments.failover.model import DARK_S, MENDED_S, Cut, Kind
from tools.experiments.fleets import PulseSettings, running_fleet
from tools.experiments.runs import interrupt, send
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.session import lab_for_run
from tools.roce.collective.rank import Rank
from tools.roce.flows import Flow
from tools.roce.generator import Generator

PULSES = PulseSettings(interval_ms=3.0, dead_after_ms=10.0)
"""Rarer than usual: a small machine has one processor for the hosts of a whole lab."""

HOLD_DOWN_MS = 500.0
"""Each cut is a case of its own: a path that another cut took is not left alone for longer."""

Json = dict[str, Any]
Taken = dict[int, frozenset[str]]
"""Directed links that each queue pair takes, by flow."""


@dataclass(frozen=True)
class Case:
    """What sends while something is cut.

    Attributes:
        name: for people, empty where there is one only.
        cut_once: new queue pairs by a seed, one cut, one mending; what came of it.
        shown: that, for people.
    """

    name: str
    cut_once: Callable[[Lab, int], Json]
    shown: Callable[[Json], str]


def run_cuts(
    spec: LabSpec, arms: Sequence[str], cases: Sequence[Case], cuts: int, seed: int
) -> tuple[Lab, list[Json]]:
    """Cut something so often for each arm and case.

    Args:
        spec: of the lab.
        arms: `cwdp` has its planner on.
        cases: what sends.
        cuts: for each arm and case.
        seed: draws the same queue pairs for each.

    Returns:
        The lab, which is gone unless it was there before, and what came of each cut, with its `arm`.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[Json] = []
    with lab_for_run(spec.name, spec) as lab:
        faults.prepare_silence(lab.name, lab.topology)
        for arm in arms:
            with running_fleet(
                lab, planner=arm == "cwdp", pulses=PULSES, hold_down_max_ms=HOLD_DOWN_MS
            ) as fleet:
                for case in cases:
                    rng = random.Random(seed)
                    for number in range(cuts):
                        run = case.cut_once(lab, rng.randrange(2**32))
                        runs.append({"arm": arm} | run)
                        which = f"{arm}, {case.name}cut {number + 1} of {cuts}"
                        progress(f"{which}: {case.shown(run)}")
                        fleet.check()
    return lab, runs


def send_through_cut(
    lab: Lab,
    flows: Sequence[Flow],
    steered_s: float,
    draw: Callable[[], tuple[Cut, Taken]],
    *,
    ranks: Sequence[Rank] = (),
) -> tuple[measure.Result, Cut, Taken, tuple[int, int]]:
    """Have queue pairs send, with one cut.

    Args:
        lab: where.
        flows: the queue pairs.
        steered_s: until the cut is drawn.
        draw: draws it, and says what the queue pairs take then.
        ranks: what posts messages to flows of its own.

    Returns:
        The run's result, what was drawn, and when it was done and mended: just before each, CLOCK_MONOTONIC in ns.
    """
    made: list[tuple[Cut, Taken, tuple[int, int]]] = []

    def during(_: Generator) -> None:
        time.sleep(steered_s)
        cut, taken = draw()
        made.append((cut, taken, interrupt(cut, lab.name, DARK_S)))
        time.sleep(MENDED_S)

    result = send(lab, flows, 0.0, during=during, ranks=ranks)
    cut, taken, span_ns = made[0]
    if cut.kind is Kind.CARRIER:
        for link in cut.links:
            faults.drop(lab.name, link, 0.0)
    return result, cut, taken, span_ns
