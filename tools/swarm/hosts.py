"""The hosts of a swarm: what each was told, what it knows, and what it says now."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class World:
    """What all hosts of a swarm share."""

    fabric: SwarmFabric
    traffic: Traffic
    clocks: Clocks
    timelines: Timelines
    iterations: Iterations
    seed: int


class SwarmHost:
    """One host.

    Attributes:
        pod: the number of its pod.
        told: its document; None before the first.
        moves: how many of its queue pairs have been steered elsewhere.
        is_away: whether it says nothing.
    """

    def __init__(self, number: int, world: World) -> None:
        self.name, self.number = f"h{number}", number
        self._world = world
        self.pod = number // world.fabric.size.pod_hosts
        per = world.fabric.size.nics_per_host
        self._nics = range(number * per, (number + 1) * per)
        self._ifnames = [f"nic{i}" for i in range(per)]
        self.told: Desired | None = None
        self._whole: Desired | None = None
        self.moves = 0
        self.is_away = False
        self._starts = 0
        self._line: ClockLine | None = None
        self._epoch = 0
        self._probes: HostProbes | None = None
        self._next_window: int | None = None
        self._told_bursts_ns: int | None = None
        self._untraced: list[tuple[str, str, int]] = []
        self._ordered: set[tuple[str, str, int]] = set()
        self._seq = self._steers = 0
        self._windows: ToldWindows | None = None
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
            seed = self._world.seed, self.number
            self._probes = HostProbes(self._world.fabric, told.probes, seed) if told.probes else None
            self._windows = (
                ToldWindows(self.name, self._ifnames, self._probes.paths) if self._probes else None
            )
        if before is None or before.steer != told.steer:
            self.moves += self._world.traffic.steer(self.number, told.steer)
        if before is None or before.traces != told.traces:
            self._order(told.traces)
        if before is not None and before.epoch != told.epoch:
            self._untraced = sorted(self._ordered)

    def _order(self, traces: Sequence[TraceOrder]) -> None:
        """Trace these and no others; what was withdrawn is traced anew if it is ordered again."""
        before = self._ordered
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
        self._world.timelines.hear(self.pod, self.number, update.line)
        return update.epoch != before

    def hello(self) -> Hello:
        """That it is there."""
        nics = [
            Nic(
                ifname=ifname,
                mac=f"02:00:{nic.to_bytes(4, 'big').hex(':')}",
                ipv4=nic_address(nic),
                ipv6=None,
                carrier=True,
                mode="native",
                speed_bps=int(self._world.fabric.size.line_bps),
            )
            for ifname, nic in zip(self._ifnames, self._nics, strict=True)
        ]
        return Hello(
            host=self.name,
            boot_id=self._boot_id,
            version="swarm",
            dataplane_tag="swarm",
            nics=nics,
            desired_version=self.told.version if self.told else 0,
            key_ids=[1],
            reads_changes=True,
        )

    def report(self, now_ns: int, *, with_fits: bool, in_full: bool, with_counters: bool) -> Report:
        """What it measured."""
        self._seq += 1
        discipline = Discipline(source="adjtimex", frequency_ppb=12.5, changes=3, changed_s_ago=8.0)
        has_fits, has_paths = self._probes and with_fits, self._probes and in_full
        local_ns = self._world.clocks.local_ns(self.number, now_ns)
        return Report(
            host=self.name,
            boot_id=self._boot_id,
            seq=self._seq,
            local_ns=local_ns,
            fits=self._probes.fits(now_ns, self.number, self._world.clocks)
            if has_fits and self._probes
            else EdgeRows(),
            paths=self._probes.stats(1.0, self._world.timelines.ahead_ns(self.pod, now_ns))
            if has_paths and self._probes
            else EdgeRows(),
            counters=self._counters if with_counters else {},
            clock=None if self._line is None else _at(self._line, local_ns),
            discipline=discipline if in_full else None,
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
        local_ns = self._world.clocks.local_ns(self.number, time.monotonic_ns())
        traces = [
            Trace(
                nic=ifname,
                dst_addr=dst_addr,
                sport=sport,
                reached=True,
                local_ns=local_ns,
                hops=self._world.fabric.hops(
                    self._nics[self._ifnames.index(ifname)], nic_of(dst_addr), sport
                ),
            )
            for ifname, dst_addr, sport in now
        ]
        return TraceReport(host=self.name, boot_id=self._boot_id, traces=traces)

    def windows(self, now_ns: int) -> list[WindowReport]:
        """What became of probes in the windows that are over."""
        if self._probes is None or self._windows is None or self._line is None:
            return []
        waited_ns = LOSSES_WAIT_NS if self._probes.loses else WAITED_NS
        end = (self._world.timelines.of(self.number, self._line, now_ns) - waited_ns) // WINDOW_NS
        first = end - 1 if self._next_window is None else max(self._next_window, end - MOST_WINDOWS)
        if end <= first:
            return []
        self._next_window = end
        sums = self.told is not None and self.told.report_interval_s >= SUMS_FROM_S
        rows = self._probes.windows(first, end, self._world.timelines.ahead_ns(self.pod, now_ns), sums=sums)
        return list(self._windows.of(rows, self._boot_id))

    def queue_pairs(self, now_ns: int) -> QpReport:
        """What its queue pairs sent."""
        return QpReport(
            host=self.name,
            boot_id=self._boot_id,
            local_ns=self._world.clocks.local_ns(self.number, now_ns),
            nics=[
                NicQueuePairs(nic=ifname, rows=self._world.traffic.told(nic))
                for ifname, nic in zip(self._ifnames, self._nics, strict=True)
            ],
        )

    def bursts(self, now_ns: int) -> BurstReport | None:
        """The bursts that have ended since it told of some last."""
        if self._line is None:
            return None
        now_ns = self._world.timelines.of(self.number, self._line, now_ns)
        since_ns, self._told_bursts_ns = self._told_bursts_ns or now_ns, now_ns
        traffic, told = self._world.traffic, []
        for ifname, nic in zip(self._ifnames, self._nics, strict=True):
            starts_ns = self._world.iterations.ended(traffic.jobs_of(nic), since_ns, now_ns)
            if len(starts_ns):
                told.append(NicBursts(nic=ifname, rows=traffic.bursts(nic, starts_ns)))
        return BurstReport(host=self.name, boot_id=self._boot_id, nics=told) if told else None

    @property
    def probes_between_pods(self) -> int:
        """How many paths it probes that lead to other pods."""
        return 0 if self._probes is None else self._probes.between_pods

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
