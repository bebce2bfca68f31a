"""A subnet that ibsim simulates, with the counters of its traffic, and a process that polls and judges it."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from select import select
from types import TracebackType
from typing import Any, Self

from cwdp.errors import LabError
from cwdp.shared.ib.counters import WORD_BYTES
from tools.ib.simulated import Subnet
from tools.ib.topology import LANE_BPS, LANES, TICKS_PER_S, Port, port_name
from tools.ib.traffic import Traffic

WAIT, SENT = "PortCounters.PortXmitWait", "PortCountersExtended.PortXmitData"
SYMBOL_ERRORS, RECEIVE_ERRORS = "PortCounters.SymbolErrorCounter", "PortCounters.PortRcvErrors"
DOWNED, RECOVERED = "PortCounters.LinkDownedCounter", "PortCounters.LinkErrorRecoveryCounter"
MOST = {
    SYMBOL_ERRORS: 0xFFFF,
    RECEIVE_ERRORS: 0xFFFF,
    DOWNED: 0xFF,
    RECOVERED: 0xFF,
    WAIT: 0xFFFF_FFFF,
    SENT: 0xFFFF_FFFF_FFFF_FFFF,
}
"""Where counters stop."""

ERRORS_A_POLL = 0.1
"""Symbol errors of a subnet that is well, one at a random port."""

END_S, ANSWER_S = 5.0, 60.0

Json = dict[str, Any]
Place = tuple[Port, str]


@dataclass(frozen=True)
class Broken:
    """What a poll finds besides traffic.

    Attributes:
        grows: counters, by how much in each second.
        lanes: ports that are read as of fewer lanes, by their names.
    """

    grows: Mapping[Place, int] = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)


class Polled:
    """As a context."""

    def __init__(self, subnet: Subnet, traffic: Traffic) -> None:
        self.subnet, self.traffic = subnet, traffic
        self._counters: Counter[Place] = Counter()

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

    def poll(self, broken: Broken | None = None, after_s: float = 1.0) -> list[Json]:
        """What holds after one more second of traffic, by a clock that moves on by more where that is told."""
        broken = broken or Broken()
        self._grow(Counter(self._second(broken.lanes)) + Counter(broken.grows))
        found: list[Json] = self.ask(json.dumps([after_s, broken.lanes]))
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

    def _second(self, lanes: Mapping[str, int]) -> dict[Place, int]:
        """By how much counters grow in a second of a subnet that is well; links with fewer lanes are sent so much less."""
        sends, waits = self.traffic.second()
        grown: dict[Place, int] = {}
        for port, sent, waited in zip(self.traffic.ports, sends.tolist(), waits.tolist(), strict=True):
            rate_bps = lanes.get(port_name(*port), LANES) * LANE_BPS
            grown[port, SENT] = int(sent * rate_bps / 8 / WORD_BYTES)
            grown[port, WAIT] = int(waited * TICKS_PER_S)
        draw = self.traffic.draw
        if draw.random() < ERRORS_A_POLL:
            grown[self.traffic.ports[draw.integers(len(self.traffic.ports))], SYMBOL_ERRORS] = 1
        return grown

    def _grow(self, grown: Mapping[Place, int]) -> None:
        """Have counters grow; what would get to its most begins anew, as if somebody had cleared it."""
        for place, more in grown.items():
            before = self._counters[place]
            self._counters[place] = before + more if before + more < MOST[place[1]] else more
        self.subnet.run_commands(
            [
                f'PerformanceSet "{node}"[{number}] {name}={self._counters[(node, number), name]}'
                for (node, number), name in grown
            ]
        )
