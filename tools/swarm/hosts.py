"""The hosts of a swarm: what each was told, what it knows, and what it says now."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from cwdp.agent.pace import SUMS_FROM_S
from cwdp.shared.bursts import BurstReport, NicBursts
from cwdp.shared.bus.clocks import Discipline
from cwdp.shared.bus.desired.changes import Change, changed, changes
from cwdp.shared.bus.edges import EdgeRows
from cwdp.shared.bus.messages import (
    ClockLine,
    ClockUpdate,
    Desired,
    Hello,
    Nic,
    NicQueuePairs,
    QpReport,
    Report,
    SteerReport,
    Trace,
    TraceOrder,
    TraceReport,
    WindowReport,
)
from cwdp.shared.bus.records import WINDOW_NS
from tools.swarm.fabric import SwarmFabric, nic_address, nic_of
from tools.swarm.iterations import Iterations
from tools.swarm.probes import HostProbes
from tools.swarm.timelines import Clocks, Timelines
from tools.swarm.told import ToldWindows
from tools.swarm.traffic import Traffic

WAITED_NS, LOSSES_WAIT_NS = 120_000_000, 320_000_000
"""For so long after a window an agent waits for answers; longer where some do not come."""

MOST_WINDOWS = 10
COUNTERS_A_NIC = 70
"""How many an agent tells of."""

DISCIPLINE = Discipline(source="adjtimex", frequency_ppb=12.5, changes=3, changed_s_ago=8.0)


@dataclass(frozen=True)
class World:
    """What all hosts of a swarm share."""

    fabric: SwarmFabric
    traffic: Traffic
    clocks: Clocks
    timelines: Timelines
    iterations: Iterations
    seed: int


class Over(NamedTuple):
    """Windows that are over and of which a host has yet to tell: those from `first` to before `end`.

    `sums` says whether those of a path that loses nothing are told as one.
    """

    pod: int
    first: int
    end: int
    sums: bool


class SwarmHost:
    """One host.

    Attributes:
        world: what it shares with others.
        pod: the number of its pod.
        probes: what it probes; None before it is told.
        told: its document; None before the first.
        moves: how many of its queue pairs have been steered elsewhere.
        is_away: whether it says nothing.
        ordered_s: when it was told last to trace others than before, by the monotonic clock.
    """

    def __init__(self, number: int, world: World) -> None:
        self.name, self.number = f"h{number}", number
        self.world = world
        self.pod = number // world.fabric.size.pod_hosts
        per = world.fabric.size.nics_per_host
        self._nics = range(number * per, (number + 1) * per)
        self._ifnames = [f"nic{i}" for i in range(per)]
        self.told: Desired | None = None
        self._whole: Desired | None = None
        self.moves = 0
        self.is_away = False
        self.ordered_s = time.monotonic()
        self._starts = 0
        self._line: ClockLine | None = None
        self._epoch = 0
        self.probes: HostProbes | None = None
        self._next_window: int | None = None
        self._told_bursts_ns: int | None = None
        self._untraced: list[tuple[str, str, int]] = []
        self._ordered: set[tuple[str, str, int]] = set()
        self._seq = self._steers = 0
        self._windows: ToldWindows | None = None
        self._hello: Hello | None = None
        self._counters = {
            f"dataplane.{ifname}.reason_{i}": 1_000_000 + i
            for ifname in self._ifnames
            for i in range(COUNTERS_A_NIC)
        }

    def come_back(self) -> None:
        """Speak again, as an agent that has begun anew."""
        self.is_away, self._starts = False, self._starts + 1
        self._untraced = sorted(self._ordered)

    def take_document(self, told: Desired) -> bool:
        """Do from now on as it says; whether it is from another leader than what it heard before."""
        before, self._epoch = self._epoch, told.epoch
        self._whole = told
        self._take(told)
        return told.epoch != before

    def _take(self, told: Desired) -> None:
        if self.told is not None and (told.epoch, told.version) <= (self.told.epoch, self.told.version):
            return
        before, self.told = self.told, told
        if before is None or before.probes != told.probes:
            seed = self.world.seed, self.number
            self.probes = HostProbes(self.world.fabric, told.probes, seed) if told.probes else None
            self._windows = ToldWindows(self.name, self._ifnames, self.probes.told) if self.probes else None
        if before is None or before.steer != told.steer:
            self.moves += self.world.traffic.steer(self.number, told.steer)
        if before is None or before.traces != told.traces:
            self._order(told.traces)
        if before is not None and before.epoch != told.epoch:
            self._untraced = sorted(self._ordered)

    def _order(self, traces: Sequence[TraceOrder]) -> None:
        """Trace these and no others; what was withdrawn is traced anew if it is ordered again."""
        before, self.ordered_s = self._ordered, time.monotonic()
        self._ordered = {(order.nic, order.dst_addr, sport) for order in traces for sport in order.sports}
        self._untraced = [each for each in self._untraced if each in self._ordered]
        self._untraced += sorted(self._ordered - before)

    def take_change(self, change: Change) -> None:
        """Do from now on as its document says with a change; not where it is one to another document."""
        if self._whole is not None and changes(self._whole, change):
            self._take(changed(self._whole, change))

    def take_clock(self, update: ClockUpdate) -> bool:
        """Follow it; whether it is from another leader than what it heard before."""
        self._line, before, self._epoch = update.line, self._epoch, update.epoch
        self.world.timelines.hear(self.pod, self.number, update.line)
        return update.epoch != before

    def hello(self) -> Hello:
        """That it is there; the same object as before where nothing has changed."""
        version = self.told.version if self.told else 0
        hello = self._hello
        if hello is None or (hello.boot_id, hello.desired_version) != (self._boot_id, version):
            hello = self._hello = self._new_hello(version)
        return hello

    def _new_hello(self, desired_version: int) -> Hello:
        nics = [
            Nic(
                ifname=ifname,
                mac=f"02:00:{nic.to_bytes(4, 'big').hex(':')}",
                ipv4=nic_address(nic),
                ipv6=None,
                carrier=True,
                mode="native",
                speed_bps=int(self.world.fabric.size.line_bps),
            )
            for ifname, nic in zip(self._ifnames, self._nics, strict=True)
        ]
        return Hello(
            host=self.name,
            boot_id=self._boot_id,
            version="swarm",
            dataplane_tag="swarm",
            nics=nics,
            desired_version=desired_version,
            key_ids=[1],
            reads_changes=True,
        )

    def report(
        self, now_ns: int, fits: EdgeRows, paths: EdgeRows, *, in_full: bool, with_counters: bool
    ) -> Report:
        """What it measured."""
        self._seq += 1
        local_ns = self.world.clocks.local_ns(self.number, now_ns)
        return Report(
            host=self.name,
            boot_id=self._boot_id,
            seq=self._seq,
            local_ns=local_ns,
            fits=fits,
            paths=paths,
            counters=self._counters if with_counters else {},
            clock=None if self._line is None else _at(self._line, local_ns),
            discipline=DISCIPLINE if in_full else None,
        )

    def steered(self) -> SteerReport:
        """What is steered on it."""
        self._steers += 1
        return SteerReport(
            host=self.name,
            boot_id=self._boot_id,
            managed=self.told.steer if self.told else [],
            by_hand=[],
            number=self._steers,
        )

    def traces(self, most: int) -> TraceReport | None:
        """Some more paths' hops."""
        if not self._untraced:
            return None
        now, self._untraced = self._untraced[:most], self._untraced[most:]
        local_ns = self.world.clocks.local_ns(self.number, time.monotonic_ns())
        src = np.array([self._nics[self._ifnames.index(ifname)] for ifname, _, _ in now])
        dst = np.array([nic_of(dst_addr) for _, dst_addr, _ in now])
        hops = self.world.fabric.hops(src, dst, np.array([sport for _, _, sport in now]))
        traces = [
            Trace(
                nic=ifname,
                dst_addr=dst_addr,
                sport=sport,
                reached=True,
                local_ns=local_ns,
                hops=those,
            )
            for (ifname, dst_addr, sport), those in zip(now, hops, strict=True)
        ]
        return TraceReport(host=self.name, boot_id=self._boot_id, traces=traces)

    def windows_over(self, now_ns: int) -> Over | None:
        """The windows of which it tells next, and no more then; None where there are none."""
        if self.probes is None or self._line is None:
            return None
        waited_ns = LOSSES_WAIT_NS if self.probes.loses else WAITED_NS
        end = (self.world.timelines.of(self.number, self._line, now_ns) - waited_ns) // WINDOW_NS
        first = end - 1 if self._next_window is None else max(self._next_window, end - MOST_WINDOWS)
        if end <= first:
            return None
        self._next_window = end
        sums = self.told is not None and self.told.report_interval_s >= SUMS_FROM_S
        return Over(self.pod, first, end, sums)

    def windows(self, rows: np.ndarray) -> Iterator[WindowReport]:
        """PLACED_ROWs of what became of probes, as messages."""
        assert self._windows is not None
        return self._windows.of(rows, self._boot_id)

    def queue_pairs(self, now_ns: int) -> QpReport:
        """What its queue pairs sent."""
        return QpReport(
            host=self.name,
            boot_id=self._boot_id,
            local_ns=self.world.clocks.local_ns(self.number, now_ns),
            nics=[
                NicQueuePairs(nic=ifname, rows=rows)
                for ifname, rows in zip(self._ifnames, self.world.traffic.told(self._nics), strict=True)
            ],
        )

    def bursts(self, now_ns: int) -> BurstReport | None:
        """The bursts that have ended since it told of some last."""
        if self._line is None:
            return None
        now_ns = self.world.timelines.of(self.number, self._line, now_ns)
        since_ns, self._told_bursts_ns = self._told_bursts_ns or now_ns, now_ns
        traffic = self.world.traffic
        starts_ns = self.world.iterations.ended(traffic.jobs_of(self._nics), since_ns, now_ns)
        if not len(starts_ns):
            return None
        nics = [
            NicBursts(nic=ifname, rows=rows)
            for ifname, rows in zip(self._ifnames, traffic.bursts(self._nics, starts_ns), strict=True)
        ]
        return BurstReport(host=self.name, boot_id=self._boot_id, nics=nics)

    @property
    def probes_between_pods(self) -> int:
        """How many paths it probes that lead to other pods."""
        return 0 if self.probes is None else self.probes.between_pods

    @property
    def _boot_id(self) -> str:
        return f"{self.name} {self._starts}"


def _at(line: ClockLine, local_ns: int) -> ClockLine:
    """The same line as it stands at a local time, as agents report it."""
    age_ns = local_ns - line.ref_local_ns
    return replace(
        line,
        ref_local_ns=local_ns,
        offset_ns=line.offset_ns + line.drift * age_ns,
        bound_ns=line.bound_ns + line.bound_drift * abs(age_ns),
    )
