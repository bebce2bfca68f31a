"""Hosts that exist in arithmetic only: they speak to the manager like agents do, with perfect fits plus noise."""

import asyncio
import random
import time
from collections.abc import Callable
from ipaddress import IPv6Address

import msgspec
from bus_fakes import POD, host_bus

from cwdp.shared.bus.edges import EdgeFit, PathStat, fit_rows, path_rows
from cwdp.shared.bus.messages import (
    ClockLine,
    ClockUpdate,
    Desired,
    DriftPrior,
    Hello,
    Nic,
    ProbeEdge,
    Report,
    UdAddress,
)
from cwdp.shared.bus.subjects import down, up
from tools.sim.fleet.speaking import NOISE_NS, fit_of, hello_of

REPORT_INTERVAL_S = 0.2


class FakeHost:
    """One host with a clock of its own; `lie_ns` is what it adds to the times that it tells others."""

    def __init__(self, name: str, url: str, *, offset_ns: int, drift: float, pod: str = POD) -> None:
        self.name, self.pod = name, pod
        self.offset_ns = offset_ns
        self.drift = drift
        self.lie_ns = 0.0
        self.addresses: dict[str, str | None] = {}
        self.key_ids = [1]
        self.fleet: dict[str, FakeHost] = {}
        self.update: ClockUpdate | None = None
        self.desired: Desired | None = None
        self.updates = 0
        self.priors: dict[str, DriftPrior] = {}
        self.random = random.Random(name)
        self.bus = host_bus(url, name, pod)
        self.bus.subscribe(down(pod, name, "clock"), ClockUpdate, self._on_update)
        self.bus.watch(name, self._on_desired)
        self._seq = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.bus.start()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.bus.close()

    def local_ns(self, true_ns: int) -> int:
        return true_ns + self.offset_ns + round(self.drift * (true_ns - ORIGIN_NS))

    def global_ns(self, true_ns: int) -> float:
        """What this host believes the timeline shows, as a difference from true time."""
        assert self.update is not None
        line = self.update.line
        local_ns = self.local_ns(true_ns)
        rest = line.offset_ns + line.drift * (local_ns - line.ref_local_ns)
        return local_ns + line.offset_base_ns - true_ns + rest

    def hello(self) -> Hello:
        said = hello(self.name, desired_version=self.desired.version if self.desired else 0)
        return msgspec.structs.replace(said, nics=[nic(**self.addresses)], key_ids=self.key_ids)

    def report(self) -> Report:
        true_ns = time.monotonic_ns()
        probes = self.desired.probes if self.desired else []
        self._seq += 1
        return Report(
            host=self.name,
            boot_id="boot",
            seq=self._seq,
            local_ns=self.local_ns(true_ns),
            fits=fit_rows([self._fit(probe, true_ns) for probe in probes]),
            paths=path_rows([path_stat(probe) for probe in probes]),
            counters={"dataplane.eth0.probe_ok": self._seq, "agent.report_sent": self._seq},
            clock=self._line(),
        )

    def _line(self) -> ClockLine | None:
        return None if self.update is None else self.update.line

    def _fit(self, probe: ProbeEdge, true_ns: int) -> EdgeFit:
        peer = self.fleet[probe.dst.partition("/")[0]]
        return fit_of(
            probe,
            (self.local_ns(true_ns), peer.local_ns(true_ns)),
            (self.drift, peer.drift),
            offset_ns=self.random.gauss(0, NOISE_NS) + peer.lie_ns - self.lie_ns,
        )

    def _on_update(self, update: ClockUpdate) -> None:
        self.update = update
        self.updates += 1
        self.priors |= {prior.dst: prior for prior in update.priors}

    def _on_desired(self, desired: Desired) -> None:
        if self.desired is None or desired.version > self.desired.version:
            self.desired = desired

    async def _run(self) -> None:
        turn = 0
        while True:
            if turn % 5 == 0:
                self.bus.publish(up(self.pod, self.name, "hello"), self.hello())
            self.bus.publish(up(self.pod, self.name, "report"), self.report())
            turn += 1
            await asyncio.sleep(REPORT_INTERVAL_S)


ORIGIN_NS = time.monotonic_ns()


def fleet(count: int, url: str, *, pod: str = POD) -> list[FakeHost]:
    """Hosts whose clocks are seconds apart and drift by up to 50 ppm; those of another pod than the first bear its name."""
    prefix = "h" if pod == POD else pod
    source = random.Random(count)
    hosts = [
        FakeHost(
            f"{prefix}{i}",
            url,
            offset_ns=source.randrange(-5 * 10**9, 5 * 10**9),
            drift=source.uniform(-5e-5, 5e-5),
            pod=pod,
        )
        for i in range(count)
    ]
    for number, host in enumerate(hosts, 1):
        host.addresses = {"ipv4": f"10.0.0.{number}", "ipv6": f"fd00::{number:x}"}
        host.fleet = {other.name: other for other in hosts}
    return hosts


def hello(host: str, *, nics: int = 1, desired_version: int = 0, boot_id: str = "boot") -> Hello:
    found = [nic(f"eth{i}") for i in range(nics)]
    return hello_of(host, found, desired_version=desired_version, boot_id=boot_id)


def showing(time_ns: int) -> ClockLine:
    """The line of a clock that is right, from this time on."""
    return ClockLine(
        ref_local_ns=time_ns,
        offset_base_ns=0,
        offset_ns=0.0,
        drift=0.0,
        bound_ns=1.0,
        bound_drift=0.0,
        state="synced",
    )


def ud_nic(
    ifname: str = "eth0", *, gid: str = "::ffff:10.0.0.1", qpn: int = 17, sports: tuple[int, ...] = ()
) -> Nic:
    """A NIC that probes by UD queue pairs, with the address of its GID."""
    address = IPv6Address(gid)
    ipv4 = None if address.ipv4_mapped is None else str(address.ipv4_mapped)
    return msgspec.structs.replace(
        nic(ifname, ipv4=ipv4, ipv6=None if ipv4 else gid),
        mode="absent",
        transport="ud",
        ud=UdAddress(gid, qpn, sports),
    )


def nic(ifname: str = "eth0", *, ipv4: str | None = "10.0.0.1", ipv6: str | None = "fd00::1") -> Nic:
    return Nic(ifname=ifname, mac="02:00:00:00:00:01", ipv4=ipv4, ipv6=ipv6, carrier=True, mode="native")


def path_stat(probe: ProbeEdge) -> PathStat:
    return PathStat(
        src=probe.src,
        dst=probe.dst,
        sport=probe.sports[0],
        reply_sport=probe.reply_sports[0],
        sent=100,
        lost=1,
        queued=3,
        rtt_min_ns=10_000,
        fwd_min_ns=5000,
        fwd_p50_ns=5100,
        fwd_p99_ns=9000,
        rev_min_ns=4900,
        rev_p50_ns=5000,
        rev_p99_ns=7000,
        bound_ns=40,
    )


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.02)
