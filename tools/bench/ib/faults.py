"""Faults of a subnet that ibsim and opensm simulate: random ones, one after the other, and what is found by its ports' counters.

Polls are as in a fleet: all ports' states, tables and counters are read by management datagrams, and judged. Their clock is
simulated: each counts as a second after the one before, so that ten minutes take less. Meanwhile the subnet has traffic
(`tools/ib/traffic.py`).
"""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cwdp.cli.output import progress
from tools.bench.figures import Figure, figure
from tools.bench.ib.polled import DOWNED, RECEIVE_ERRORS, RECOVERED, SYMBOL_ERRORS, Broken, Json, Polled
from tools.bench.ib.quiet import SECONDS, named
from tools.ib.faults import Fault, Kind, draw
from tools.ib.judged import COST
from tools.ib.simulated import Subnet
from tools.ib.topology import Clos, port_name
from tools.ib.traffic import Traffic

FAULTS, SEEDS = 200, (1, 2, 3)
POLLS, WARM_POLLS, MOST_CALM_POLLS, CALM_S = 3, 6, 10, 301.0
KINDS: tuple[Kind, ...] = "cut", "flapping", "degraded", "errors", "slow_receiver"
READER = "h1"
FLAPS_A_SECOND = 3
QUIET_SEEDS, LARGE_QUIET_SEEDS = range(30), range(1)
LARGE = Clos(leaves=32, spines=16, hosts=32)


@dataclass(frozen=True)
class Tried:
    """What came of a fault.

    Attributes:
        polls: after how many it was named; None for never.
        besides: what else was.
    """

    fault: Fault
    polls: int | None
    besides: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Named in time, and nothing else."""
        return self.polls is not None and not self.besides


def figures() -> Iterator[Figure]:
    """Ten minutes without a fault, random faults, and what reading costs."""
    topology = Clos()
    alarms: list[str] = []
    tried: dict[int, list[Tried]] = {}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder, Subnet(topology, Path(folder)) as subnet:
            traffic = Traffic(topology, np.random.default_rng(seed))
            with Polled(subnet, traffic) as polled:
                for _ in range(WARM_POLLS):
                    polled.poll()
                alarms += sorted({_words(each) for _ in range(SECONDS) for each in polled.poll()})
                tried[seed] = try_some(polled, topology, seed, FAULTS)
    yield figure(
        "ib_false_alarms_10_minutes", len(alarms), "findings", {"alarms": alarms, "seeds": SEEDS}, 0.0
    )
    yield _localised(tried)
    yield _quiet("ib_false_alarms_in_arithmetic", topology, QUIET_SEEDS)
    yield _quiet("ib_false_alarms_in_arithmetic_1024_hosts", LARGE, LARGE_QUIET_SEEDS)
    yield _cost(LARGE)


def try_some(polled: Polled, topology: Clos, seed: int, count: int) -> list[Tried]:
    """So many faults that a seed draws, one after the other, by turns of each kind."""
    rng = random.Random(f"ib-faults {seed}")
    return [
        try_one(polled, draw(KINDS[i % len(KINDS)], topology, rng, readers=[READER])) for i in range(count)
    ]


def try_one(polled: Polled, fault: Fault) -> Tried:
    """Break something, see what is found, mend it and wait until that is over."""
    broken = _break(polled, fault)
    right = {f"{kind} {subject}" for kind, subject in fault.right}
    found: set[str] = set()
    polls = None
    for number in range(1, POLLS + 1):
        found = {_words(each) for each in polled.poll(broken)}
        if polls is None and any(each in right and each.startswith(fault.decisive) for each in found):
            polls = number
    _mend(polled, fault)
    for _ in range(MOST_CALM_POLLS):
        if not polled.poll(after_s=CALM_S):
            break
    for _ in range(WARM_POLLS):
        polled.poll()
    progress(f"{fault.kind} {min(right)}: polls {polls}, besides {sorted(found - right) or 'nothing'}")
    return Tried(fault, polls, tuple(sorted(found - right)))


def _break(polled: Polled, fault: Fault) -> Broken:
    here, there = fault.link.a, fault.link.b
    dice = polled.traffic.draw
    match fault.kind:
        case "cut":
            polled.subnet.run_commands([f'Unlink "{here[0]}"[{here[1]}]'])
            polled.traffic.cut(here)
        case "flapping":
            return Broken({(here, str(dice.choice([DOWNED, RECOVERED]))): FLAPS_A_SECOND})
        case "degraded":
            return Broken(lanes={port_name(*end): int(fault.size) for end in (here, there)})
        case "errors":
            return Broken({(here, str(dice.choice([SYMBOL_ERRORS, RECEIVE_ERRORS]))): int(fault.size)})
        case "slow_receiver":
            polled.traffic.slow_down(there[0], fault.size)
    return Broken()


def _mend(polled: Polled, fault: Fault) -> None:
    here, there = fault.link.a, fault.link.b
    if fault.kind == "cut":
        polled.subnet.run_commands([f'ReLink "{here[0]}"[{here[1]}]'])
        polled.subnet.sweep()
        polled.traffic.cut(None)
    elif fault.kind == "slow_receiver":
        polled.traffic.mend(there[0])


def _localised(tried: dict[int, list[Tried]]) -> Figure:
    every = [one for some in tried.values() for one in some]
    right = [one for one in every if one.is_right]
    reference = {
        "faults": len(every),
        "right": len(right),
        "right_by_seed": {str(seed): sum(one.is_right for one in some) for seed, some in tried.items()},
        "by_kind": {kind: f"{_of(kind, right)} of {_of(kind, every)}" for kind in KINDS},
        "polls": {
            str(count): times for count, times in sorted(Counter(one.polls for one in right).items(), key=str)
        },
        "wrong": [
            f"{one.fault.kind} {one.fault.link.key} {one.fault.size}: {one.polls}, {one.besides}"
            for one in every
            if not one.is_right
        ],
    }
    worst = max(1 - sum(one.is_right for one in some) / len(some) for some in tried.values())
    return figure("ib_faults_not_named_in_3_s", worst, "share of the worst seed", reference, 0.01)


def _of(kind: Kind, tried: Sequence[Tried]) -> int:
    return sum(one.fault.kind == kind for one in tried)


def _quiet(name: str, topology: Clos, seeds: Sequence[int]) -> Figure:
    alarms = {str(seed): found for seed in seeds if (found := named(topology, seed))}
    reference = {"alarms": alarms, "times_10_minutes": len(seeds)}
    return figure(name, sum(map(len, alarms.values())), "findings", reference, 0.0)


def _cost(topology: Clos) -> Figure:
    with (
        tempfile.TemporaryDirectory() as folder,
        Subnet(topology, Path(folder), lmc=0) as subnet,
        Polled(subnet, Traffic(topology, np.random.default_rng(1))) as polled,
    ):
        told = polled.ask(COST)
    return figure("ib_reading_10000_ports", told["cpu_s"], "share of a core", told, 0.2)


def _words(finding: Json) -> str:
    return f"{finding['kind']} {finding['subject']}"
