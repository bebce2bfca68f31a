"""Queue pairs that the verbs shim has told of, and what can move each. No I/O."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cwdp.shared.bus.messages import ACTUATORS, Actuator
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import VERBS_BY_TABLE, VERBS_REFUSED, VERBS_ROW, packed_address, shown_address
from cwdp.shared.verbs import NicVerbs, VerbsReport

MOST_ROWS = 65_536
MOST_NAME = 64
MOST_CGROUP = 512
MOST_JOB = 64

NicName = tuple[str, str]
Key = tuple[bytes, int]
"""A queue pair of a NIC: the packed address of the far end, and its QPN there."""

Name = tuple[str, str, str, int]
"""A queue pair: host, NIC, address of the far end, and its QPN there; see `manager.planner.flows.QpName`."""


@dataclass(frozen=True, kw_only=True)
class VerbsQp:
    """What is known of one by the shim.

    Attributes:
        actuator: what moves it.
        lqpn, pid: its own number, and the process that has it, on its host.
        program, cgroup, job: of the process; empty where not known.
        by_table: whether its port is of cwdp's choice from the beginning.
        refused: whether its last move came to nothing.
        sport: its source port, over InfiniBand the DLID; 0 where its device has chosen it.
        alternate: the DLID of the alternate path that it has loaded by order; 0 for none.
    """

    actuator: Actuator
    lqpn: int
    pid: int
    program: str
    cgroup: str
    job: str
    by_table: bool
    refused: bool
    sport: int = 0
    alternate: int = 0


@dataclass(frozen=True)
class HostVerbs:
    """All of a host; `qps` by NIC."""

    qps: dict[NicName, dict[Key, VerbsQp]]

    @cached_property
    def create_only(self) -> frozenset[Name]:
        """Those that the planner cannot move: over InfiniBand `manager.ib.migration` does."""
        return self._named("create_only") | self._named("apm")

    @cached_property
    def drained(self) -> frozenset[Name]:
        """Those that are drained to be moved."""
        return self._named("sqd")

    @cached_property
    def jobs(self) -> dict[Name, str]:
        """The jobs of those whose programs tell of one."""
        return {
            (*nic, shown_address(addr), qpn): qp.job
            for nic, those in self.qps.items()
            for (addr, qpn), qp in those.items()
            if qp.job
        }

    def _named(self, actuator: Actuator) -> frozenset[Name]:
        return frozenset(
            (*nic, shown_address(addr), qpn)
            for nic, those in self.qps.items()
            for (addr, qpn), qp in those.items()
            if qp.actuator == actuator
        )


class VerbsStore:
    """The queue pairs of all hosts.

    Attributes:
        changes: grows when they are others.
        not_sane: reports that could not be taken.
        clocks: of each host that takes orders to migrate its CLOCK_MONOTONIC in its latest report, ns, and when that was heard,
            seconds of the manager's monotonic clock.
    """

    def __init__(self) -> None:
        self.not_sane = self.changes = 0
        self.clocks: dict[str, tuple[int, float]] = {}
        self._hosts: dict[str, HostVerbs] = {}
        self._begun: dict[str, dict[int, VerbsReport]] = {}
        self._latest: dict[str, list[VerbsReport]] = {}
        self._jobs: tuple[int, dict[Name, str]] = (0, {})

    def hear(self, report: VerbsReport, nics: Collection[str], now_s: float) -> None:
        """A host tells of its queue pairs, of which `nics` are its NICs; they count once all parts are there."""
        if report.monotonic_ns:
            self.clocks[report.host] = report.monotonic_ns, now_s
        else:
            self.clocks.pop(report.host, None)
        begun = self._begun.setdefault(report.host, {})
        if any(part.number != report.number or part.parts != report.parts for part in begun.values()):
            begun.clear()
        begun[report.part] = report
        if begun.keys() != set(range(report.parts)):
            return
        parts = [begun[number] for number in range(report.parts)]
        del self._begun[report.host]
        content = [(part.nics, part.programs) for part in parts]
        if content == [(part.nics, part.programs) for part in self._latest.get(report.host, [])]:
            return
        self._latest[report.host] = parts
        self.changes += 1
        self._hosts[report.host] = HostVerbs(self._taken(report.host, parts, nics))

    def of(self, name: Name) -> VerbsQp | None:
        """A queue pair by its name; None where no program has told of it."""
        host, nic, dst_addr, qpn = name
        try:
            return self.at((host, nic), packed_address(dst_addr), qpn)
        except ValueError:
            return None

    def at(self, nic: NicName, addr: bytes, qpn: int) -> VerbsQp | None:
        """The same by a NIC, a packed address and a QPN."""
        known = self._hosts.get(nic[0])
        return None if known is None else known.qps.get(nic, {}).get((addr, qpn))

    def host(self, name: str) -> HostVerbs | None:
        """All of a host, another object whenever they are others; None where it has told of none."""
        return self._hosts.get(name)

    def far_ends(self, nic: NicName) -> set[bytes]:
        """The packed addresses that those of a NIC go to."""
        known = self._hosts.get(nic[0])
        return set() if known is None else {addr for addr, _ in known.qps.get(nic, {})}

    def each(self) -> Iterator[tuple[NicName, Key, VerbsQp]]:
        """All of them."""
        for known in self._hosts.values():
            for nic, those in known.qps.items():
                for key, qp in those.items():
                    yield nic, key, qp

    @property
    def create_only(self) -> frozenset[Name]:
        """Those of all hosts that nothing can move."""
        return frozenset().union(*(known.create_only for known in self._hosts.values()))

    @property
    def jobs(self) -> Mapping[Name, str]:
        """The jobs of those of all hosts whose programs tell of one."""
        if self._jobs[0] != self.changes:
            told = [known.jobs for known in self._hosts.values()]
            self._jobs = self.changes, {name: job for jobs in told for name, job in jobs.items()}
        return self._jobs[1]

    @property
    def drained(self) -> frozenset[Name]:
        """Those of all hosts that are drained to be moved."""
        return frozenset().union(*(known.drained for known in self._hosts.values()))

    def count(self) -> int:
        """How many there are."""
        return sum(len(those) for known in self._hosts.values() for those in known.qps.values())

    def keep_only(self, hosts: Collection[str]) -> None:
        """Let go of what others have said."""
        for memory in (self._hosts, self._begun, self._latest, self.clocks):
            for host in memory.keys() - set(hosts):
                del memory[host]
                self.changes += 1

    def _taken(
        self, host: str, parts: list[VerbsReport], nics: Collection[str]
    ) -> dict[NicName, dict[Key, VerbsQp]]:
        programs = {
            one.pid: (
                _shown(one.name[:MOST_NAME]),
                _shown(one.cgroup[:MOST_CGROUP]),
                _shown(one.job[:MOST_JOB]),
            )
            for part in parts
            for one in part.programs
        }
        found: dict[NicName, dict[Key, VerbsQp]] = {}
        left = MOST_ROWS
        for told in (one for part in parts for one in part.nics):
            if told.nic not in nics or len(told.rows) % VERBS_ROW.itemsize:
                self.not_sane += 1
                continue
            rows = rows_of(told.rows, VERBS_ROW)[:left]
            left -= len(rows)
            those = found.setdefault((host, told.nic), {})
            for row, alternate in zip(rows, _alternates(told, len(rows)), strict=True):
                if row["actuator"] < len(ACTUATORS):
                    those[row["addr"].tobytes(), int(row["qpn"])] = _read(row, programs, alternate)
        return found


def _shown(text: str) -> str:
    """With another sign for each character that could do something to a terminal: programs name themselves as they like."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _alternates(told: NicVerbs, count: int) -> list[int]:
    """Of the first so many rows."""
    if len(told.alternates) < 2 * count:
        return [0] * count
    alternates: list[int] = np.frombuffer(told.alternates, "<u2", count).tolist()
    return alternates


def _read(row: np.void, programs: dict[int, tuple[str, str, str]], alternate: int) -> VerbsQp:
    pid, flags = int(row["pid"]), int(row["flags"])
    program, cgroup, job = programs.get(pid, ("", "", ""))
    return VerbsQp(
        actuator=ACTUATORS[row["actuator"]],
        lqpn=int(row["lqpn"]),
        pid=pid,
        program=program,
        cgroup=cgroup,
        job=job,
        by_table=bool(flags & VERBS_BY_TABLE),
        refused=bool(flags & VERBS_REFUSED),
        sport=int(row["sport"]),
        alternate=alternate,
    )
