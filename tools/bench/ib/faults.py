"""Faults of a subnet that ibsim and opensm simulate: random ones, one after the other, and what is found by its ports' counters.

Polls are as in a fleet: all ports' states, tables and counters are read by management datagrams, and judged. Their clock is
simulated: each counts as a second after the one before, so that ten minutes take less.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

import numpy as np

from cwdp.cli.output import progress
from cwdp.errors import LabError
from tools.bench.figures import Figure, figure
from tools.ib.judged import COST
from tools.ib.simulated import Subnet
from tools.ib.topology import Clos, port_name

FAULTS, SECONDS = 200, 600
POLLS, WARM_POLLS, MOST_CALM_POLLS, CALM_S = 3, 6, 10, 301.0
KINDS = ("dead", "flapping", "degraded", "bit_errors", "slow_receiver")
LARGE = Clos(leaves=32, spines=16, hosts=32)
WAIT = "PortXmitWait"
TICKS_PER_S = 31_250_000
"""Of a port that waits all the time: ibsim's links are SDR, 2 Gbit/s a lane, and a tick is taken for eight bytes' time."""

NOISY_PORTS, ERRORS_A_POLL = 4, 0.1
MOST = {
    "SymbolErrorCounter": 0xFFFF,
    "PortRcvErrors": 0xFFFF,
    "LinkDownedCounter": 0xFF,
    "LinkErrorRecoveryCounter": 0xFF,
    WAIT: 0xFFFF_FFFF,
}
END_S, ANSWER_S = 5.0, 60.0

Json = dict[str, Any]
Port = tuple[str, int]
Link = tuple[Port, Port]
Place = tuple[str, int, str]


@dataclass(frozen=True)
class Tried:
    """What came of a fault.

    Attributes:
        polls: after how many it was named; None for never.
        besides: what else was.
    """

    fault: "Fault"
    polls: int | None
    besides: tuple[str, ...]


class Polled:
    """A subnet with a process that polls and judges it; as a context.

    Attributes:
        counters: what each counter of a port was set to, by node, port and name.
    """

    def __init__(self, subnet: Subnet, topology: Clos, draw: np.random.Generator) -> None:
        self.subnet = subnet
        self.counters: Counter[Place] = Counter()
        self._draw = draw
        self._ports = [end for link in links(topology) for end in link]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.ib.judged"],
            env=self.subnet.environment("h1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def poll(self, fault: "Fault | None" = None, after_s: float = 1.0) -> list[Json]:
        """A second later, or more: what holds."""
        grown = Counter(self._noise())
        if fault is not None:
            grown.update(fault.grows)
        self.counters.update(grown)
        for place in grown:
            self.counters[place] = min(self.counters[place], MOST[place[2]] - 1)
        self._set(grown)
        narrow = fault.narrow if fault is not None else ()
        found: list[Json] = self.ask(json.dumps([after_s, narrow]))
        return found

    def ask(self, line: str) -> Any:
        """What the process answers to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if not select([self._process.stdout], [], [], ANSWER_S)[0]:
            self._process.kill()
            raise LabError("the process that polls does not answer", "has ibsim ended?")
        return json.loads(self._process.stdout.readline())

    def clear(self, fault: "Fault") -> None:
        """Its counters begin anew, so that none gets to its most."""
        for place in fault.grows:
            self.counters[place] = 0
        self._set(fault.grows)

    def _noise(self) -> dict[Place, int]:
        """What ports of a subnet that is well do: short waits, a symbol error now and then."""
        chosen = self._draw.choice(len(self._ports), NOISY_PORTS, replace=False).tolist()
        grown = {(*self._ports[i], WAIT): int(self._draw.uniform(0, 0.05) * TICKS_PER_S) for i in chosen}
        if self._draw.random() < ERRORS_A_POLL:
            grown[(*self._ports[self._draw.integers(len(self._ports))], "SymbolErrorCounter")] = 1
        return grown

    def _set(self, places: Iterable[Place]) -> None:
        commands = [
            f'PerformanceSet "{node}"[{port}] PortCounters.{name}={self.counters[node, port, name]}'
            for node, port, name in places
        ]
        if commands:
            self.subnet.run_commands(commands)


def links(topology: Clos) -> list[Link]:
    """All of a topology, a host's end or a leaf's first."""
    below = [
        ((f"h{(leaf - 1) * topology.hosts + host}", 1), (f"l{leaf}", host))
        for leaf in range(1, topology.leaves + 1)
        for host in range(1, topology.hosts + 1)
    ]
    above = [
        ((f"l{leaf}", topology.hosts + spine), (f"s{spine}", leaf))
        for leaf in range(1, topology.leaves + 1)
        for spine in range(1, topology.spines + 1)
    ]
    return [*below, *above]


@dataclass(frozen=True)
class Fault:
    """What is done.

    Attributes:
        subject: what should be named.
        commands, undo: for ibsim's console.
        grows: counters, by how much in each second.
        narrow: ports that are read as of one lane.
    """

    kind: str
    subject: str
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    grows: Mapping[Place, int] = field(default_factory=dict)
    narrow: tuple[str, ...] = ()


def fault(kind: str, topology: Clos, draw: np.random.Generator) -> Fault:
    """One at a random place; the link of the host that polls is not cut, as nothing could be read any more."""
    pairs = links(topology)
    if kind == "dead":
        pairs = pairs[1:]
    pair = pairs[draw.integers(len(pairs))]
    cable = " - ".join(_name(end) for end in pair)
    here, there = pair if draw.random() < 0.5 else pair[::-1]
    match kind:
        case "dead":
            at = f'"{here[0]}"[{here[1]}]'
            return Fault(kind, cable, (f"Unlink {at}",), (f"ReLink {at}",))
        case "flapping":
            name = str(draw.choice(["LinkDownedCounter", "LinkErrorRecoveryCounter"]))
            return Fault(kind, cable, grows={(*here, name): 3})
        case "degraded":
            return Fault(kind, cable, narrow=(_name(here), _name(there)))
        case "bit_errors":
            name = str(draw.choice(["SymbolErrorCounter", "PortRcvErrors"]))
            return Fault(
                kind, f"{_name(there)} > {_name(here)}", grows={(*here, name): int(draw.integers(6, 500))}
            )
        case _:
            return _slow_receiver(topology, draw)


def _slow_receiver(topology: Clos, draw: np.random.Generator) -> Fault:
    """A host takes little: its leaf's port to it waits, all spines' to the leaf, other leaves' to the spines, some hosts'."""
    number = int(draw.integers(topology.leaves * topology.hosts))
    leaf, place = number // topology.hosts + 1, number % topology.hosts + 1
    to = (f"h{number + 1}", 1)
    ticks = int(draw.uniform(0.2, 0.9) * TICKS_PER_S)
    grows: dict[Place, int] = {(f"l{leaf}", place, WAIT): ticks}
    for spine in range(1, topology.spines + 1):
        grows[f"s{spine}", leaf, WAIT] = ticks // 2
    for other in range(1, topology.leaves + 1):
        if other != leaf:
            grows[f"h{other * topology.hosts}", 1, WAIT] = ticks // 2
            for spine in range(1, topology.spines + 1):
                grows[f"l{other}", topology.hosts + spine, WAIT] = ticks // 2
    return Fault("slow_receiver", f"l{leaf}:{place} > {_name(to)}", grows=grows)


def figures() -> Iterator[Figure]:
    """Random faults, ten minutes without one, and what reading costs."""
    topology, draw = Clos(), np.random.default_rng(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Subnet(topology, Path(folder)) as subnet,
        Polled(subnet, topology, draw) as polled,
    ):
        for _ in range(WARM_POLLS):
            polled.poll()
        alarms = {_words(each) for _ in range(SECONDS) for each in polled.poll()}
        yield figure(
            "ib_false_alarms_10_minutes", float(len(alarms)), "findings", {"alarms": sorted(alarms)}, 0.0
        )
        tried = [try_one(polled, fault(KINDS[i % len(KINDS)], topology, draw)) for i in range(FAULTS)]
    yield _localised(tried)
    yield _cost(LARGE)


def try_one(polled: Polled, one: Fault) -> Tried:
    """Break something, see what is found, mend it and wait until that is over."""
    if one.commands:
        polled.subnet.run_commands(one.commands)
    found: set[str] = set()
    polls = None
    for number in range(1, POLLS + 1):
        found = {_words(each) for each in polled.poll(one)}
        if polls is None and f"{one.kind} {one.subject}" in found:
            polls = number
    if one.undo:
        polled.subnet.run_commands(one.undo)
        polled.subnet.sweep()
    polled.clear(one)
    for _ in range(MOST_CALM_POLLS):
        if not polled.poll(after_s=CALM_S):
            break
    for _ in range(WARM_POLLS):
        polled.poll()
    wrong = found - {f"{one.kind} {one.subject}"}
    progress(f"{one.kind} {one.subject}: polls {polls}, besides {sorted(wrong) or 'nothing'}")
    return Tried(one, polls, tuple(sorted(wrong)))


def _localised(tried: Sequence[Tried]) -> Figure:
    right = [one for one in tried if one.polls is not None and not one.besides]
    by_kind = {
        kind: f"{sum(one.fault.kind == kind for one in right)} of {sum(one.fault.kind == kind for one in tried)}"
        for kind in KINDS
    }
    polls = Counter(one.polls for one in right)
    reference = {
        "faults": len(tried),
        "right": len(right),
        "by_kind": by_kind,
        "polls": {str(count): times for count, times in sorted(polls.items(), key=str)},
        "wrong": [
            f"{one.fault.kind} {one.fault.subject}: {one.besides}" for one in tried if one not in right
        ],
    }
    return figure("ib_faults_not_named_in_3_s", 1 - len(right) / len(tried), "share", reference, 0.01)


def _cost(topology: Clos) -> Figure:
    with (
        tempfile.TemporaryDirectory() as folder,
        Subnet(topology, Path(folder), lmc=0) as subnet,
        Polled(subnet, topology, np.random.default_rng(1)) as polled,
    ):
        told = polled.ask(COST)
    return figure("ib_reading_10000_ports", told["cpu_s"], "share of a core", told, 0.2)


def _name(end: tuple[str, int]) -> str:
    return port_name(*end)


def _words(finding: Json) -> str:
    return f"{finding['kind']} {finding['subject']}"
