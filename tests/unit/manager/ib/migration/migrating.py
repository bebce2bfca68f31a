"""A fleet over InfiniBand whose devices migrate: agents that pass on orders, packets that arm what both ends have loaded."""

import errno
from dataclasses import dataclass, replace

import numpy as np

from cwdp.shared.bus.messages import ACTUATORS
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import VERBS_ROW, packed_address
from cwdp.shared.ib.subnet import Subnet
from cwdp.shared.verbs import (
    MigrationAnswer,
    MigrationOrder,
    MigrationReport,
    MigrationStep,
    NicVerbs,
    VerbsReport,
)
from manager.ib.ways import ways
from tests.unit.manager.ib.ib_worlds import cut, port
from tests.unit.manager.ib.spreading.ib_fleets import NIC, Fleet

DOWN = 1


@dataclass(eq=False)
class Device:
    """One end's queue pair: its path by number, what it has loaded, whether packets have armed that."""

    host: str
    far: str
    qpn: int
    lqpn: int
    number: int
    loaded: int | None = None
    is_armed: bool = False
    error: int = 0
    knows: bool = True

    def load(self, number: int) -> int:
        """Have this path ready; to do so again disarms nothing."""
        if self.number == number:
            return errno.EINVAL
        if self.loaded != number:
            self.loaded, self.is_armed = number, False
        self.knows = True
        return 0

    def migrate(self, number: int) -> int:
        """Go there, or be there already."""
        if self.number == number:
            return 0
        if self.loaded != number:
            return errno.EINVAL
        if not self.is_armed:
            return errno.EAGAIN
        self.number, self.loaded, self.is_armed = number, None, False
        return 0


class Migrating(Fleet):
    """Attributes: `said` are orders that agents have not taken; `silent` are hosts whose agents say nothing more."""

    def __init__(self, *, clock_s: float = 77.0, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.said: list[tuple[str, MigrationOrder]] = []
        self.taken: list[tuple[str, MigrationStep]] = []
        self.ends: list[tuple[Device, Device]] = []
        self.silent: set[str] = set()
        self.old: set[str] = set()
        self._clock_s = clock_s
        self.dead: set[int] = set()
        self.state.migrations.attempts.send = lambda host, order: self.said.append((host, order))

    def join(self, src: str, dst: str, number: int) -> tuple[Device, Device]:
        """A connection, over this path at both ends."""
        place = len(self.ends)
        one = Device(src, dst, 2000 + place, 1000 + place, number)
        pair = one, Device(dst, src, one.lqpn, one.qpn, number)
        self.ends.append(pair)
        return pair

    def clock_ns(self) -> int:
        """What hosts' clocks show."""
        return round((self.now_s + self._clock_s) * 1e9)

    def tell(self) -> None:
        """Agents tell of queue pairs."""
        for host in self.row.keys() - self.silent:
            mine = [end for pair in self.ends for end in pair if end.host == host]
            rows = np.zeros(len(mine), VERBS_ROW)
            for row, end in zip(rows, mine, strict=True):
                row["addr"] = np.frombuffer(packed_address(self.addr(end.far)), np.uint8)
                row["qpn"], row["lqpn"], row["pid"] = end.qpn, end.lqpn, 7
                row["sport"] = self.lids(end.far).lid + end.number
            rows["actuator"] = ACTUATORS.index("apm")
            loaded = [
                0 if end.loaded is None or not end.knows else self.lids(end.far).lid + end.loaded
                for end in mine
            ]
            part = NicVerbs(nic=NIC, rows=row_bytes(rows), alternates=np.array(loaded, "<u2").tobytes())
            monotonic_ns = 0 if host in self.old else self.clock_ns()
            told = VerbsReport(host=host, nics=[part], monotonic_ns=monotonic_ns)
            self.state.traffic.hear_verbs(told, self.now_s)

    def lives(self, pair: tuple[Device, Device], number: int) -> bool:
        """Whether packets get through both ways."""
        found = []
        for one, other in (pair, pair[::-1]):
            routes = self.state.subnets.now[0].routes
            leaves = ways(routes, self.row[one.host], self.row[other.host])[number].leaves
            found.append(leaves is not None and self.dead.isdisjoint(leaves))
        return all(found)

    def pass_packets(self) -> None:
        """Arm what both ends have loaded, where packets get through."""
        for pair in self.ends:
            if all(end.loaded is not None for end in pair) and self.lives(pair, pair[0].number):
                for end in pair:
                    end.is_armed = True

    def answer(self) -> None:
        """Agents do what they are told, as long as somebody tells them something."""
        while self.said:
            host, order = self.said.pop(0)
            if host in self.silent:
                continue
            self.taken += [(host, step) for step in order.steps]
            late = self.clock_ns() > order.until_ns
            answers = [
                MigrationAnswer(step.number, errno.ETIMEDOUT if late else self._done(host, step))
                for step in order.steps
            ]
            self.pass_packets()
            self.state.migrations.hear(MigrationReport(host=host, answers=answers), self.now_s)

    def _done(self, host: str, step: MigrationStep) -> int:
        """What the shim answers."""
        (end,) = [end for pair in self.ends for end in pair if (end.host, end.lqpn) == (host, step.lqpn)]
        assert (step.nic, step.dst_addr, step.qpn) == (NIC, self.addr(end.far), end.qpn)
        assert step.lmc == self.lids(end.far).lmc
        number = step.dlid - self.lids(end.far).lid
        assert 0 <= number < 1 << step.lmc
        if end.error:
            return end.error
        return end.load(number) if step.how == "load" else end.migrate(number)

    def live(self, seconds: float, step_s: float = 0.1, *, tells: bool = True) -> None:
        """Let time pass: readers, agents, the manager."""
        for turn in range(round(seconds / step_s)):
            self.now_s += step_s
            if turn % round(1 / step_s) == 0:
                for host in self.row.keys() - self.silent:
                    self.state.hear_hello(self.hello(host), self.now_s)
                self.state.subnets.hear_growth(self._growth(), self.now_s)
            if tells and turn % round(2 / step_s) == 0:
                self.tell()
            self.state.subnet_faults.step(self.state.subnets.now, self.now_s)
            self.state.migrations.step(self.now_s)
            self.answer()

    def kill(self, node: str, number: int) -> None:
        """A link goes down, and the reader sees it at once."""
        row = port(self.subnet, node, number)
        both = row, int(self.subnet.ports["peer"][row])
        self.dead |= set(both)
        self.read(down(self.subnet, *both))

    def events(self, kind: str) -> list[str]:
        """What was told of a kind."""
        return [one.detail for one in self.state.events if one.kind == kind]


def down(subnet: Subnet, *rows: int) -> Subnet:
    """Without the link of these two ports, which both say so."""
    ports = cut(subnet, rows[0]).ports
    ports["is_linked"][list(rows)], ports["state"][list(rows)] = False, DOWN
    return replace(subnet, ports=ports)
