"""Hosts that exist in arithmetic only, and speak to a real manager over a real bus as agents do."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Self, TypeVar

from msgspec import Struct

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.edges import EdgeFit, fit_rows
from cwdp.shared.bus.messages import (
    ClockUpdate,
    Desired,
    Hello,
    Nic,
    ProbeEdge,
    Report,
    SteerReport,
    encode,
)
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.sealing import LeaderSeal
from cwdp.shared.bus.subjects import down, kind_of, up
from cwdp.shared.tasks import end
from manager.identity.authority import DEFAULT_POD, Authority

_T = TypeVar("_T", bound=Struct)
REPORT_EVERY_S, HELLO_EVERY = 0.25, 4
MOST_OFFSET_NS, MOST_DRIFT = 5 * 10**9, 5e-5
NOISE_NS = 5.0


class HostsSeal(LeaderSeal):
    """Of many hosts on one connection: signs nothing, and takes what leaders have signed for any of them."""

    def encode(self, kind: str, message: Struct) -> bytes:  # noqa: ARG002 - as hosts' has it
        """Bytes of a message."""
        return packed(encode(message))

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A leader's message."""
        return self.opened(kind_of(subject), of, data)


class SpeakingHosts:
    """Hosts `h0`, `h1`, ... of one NIC each on one connection, as a context; their clocks are seconds apart and drift.

    Args:
        bus: URLs of its servers.
        authority: the fleet's; by one connection for all hosts they speak as a manager would.
        count: how many hosts.
        seed: of their clocks and of the noise in their fits.
        on_clock, on_document: called with each clock update and each document that comes.

    Attributes:
        documents: the latest of each host.
    """

    def __init__(
        self,
        bus: str,
        authority: Authority,
        count: int,
        *,
        seed: int = 1,
        on_clock: Callable[[ClockUpdate], None] = lambda _: None,
        on_document: Callable[[Desired], None] = lambda _: None,
    ) -> None:
        self.documents: dict[str, Desired] = {}
        self._draw, self._origin_ns = random.Random(seed), time.monotonic_ns()
        self._clocks = {
            f"h{number}": (
                self._draw.randint(-MOST_OFFSET_NS, MOST_OFFSET_NS),
                self._draw.uniform(-MOST_DRIFT, MOST_DRIFT),
            )
            for number in range(count)
        }
        self._addresses = {
            name: f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            for number, name in enumerate(self._clocks, start=1)
        }
        self._on_document = on_document
        self._seq = 0
        self._bus = Bus(
            bus,
            authority.manager_credential("speaking hosts"),
            HostsSeal(authority.control_key),
            pod=DEFAULT_POD,
            name="speaking hosts",
        )
        for name in self._clocks:
            self._bus.subscribe(down(DEFAULT_POD, name, "clock"), ClockUpdate, on_clock)
            self._bus.watch(name, self._follow)
        self._speaking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._bus.start()
        self._speaking = asyncio.create_task(self._speak())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._speaking is not None
        await end(self._speaking)
        await self._bus.close()

    def _follow(self, told: Desired) -> None:
        known = self.documents.get(told.host)
        if known is None or (told.epoch, told.version) > (known.epoch, known.version):
            self.documents[told.host] = told
        self._on_document(told)

    async def _speak(self) -> None:
        while True:
            started_s = time.monotonic()
            for name in self._clocks:
                if self._seq % HELLO_EVERY == 0:
                    self._bus.publish(up(DEFAULT_POD, name, "hello"), self._hello(name))
                    self._bus.publish(up(DEFAULT_POD, name, "steer"), self._steered(name))
                self._bus.publish(up(DEFAULT_POD, name, "report"), self._report(name))
            self._seq += 1
            await asyncio.sleep(max(0.0, REPORT_EVERY_S - (time.monotonic() - started_s)))

    def _hello(self, name: str) -> Hello:
        nic = Nic(
            ifname="eth0",
            mac="02:00:00:00:00:01",
            ipv4=self._addresses[name],
            ipv6=None,
            carrier=True,
            mode="native",
        )
        told = self.documents.get(name)
        return hello_of(name, [nic], desired_version=told.version if told else 0)

    def _steered(self, name: str) -> SteerReport:
        told = self.documents.get(name)
        return SteerReport(host=name, managed=told.steer if told else [], by_hand=[])

    def _report(self, name: str) -> Report:
        now_ns = time.monotonic_ns()
        told = self.documents.get(name)
        return Report(
            host=name,
            boot_id="boot",
            seq=self._seq + 1,
            local_ns=self._local_ns(name, now_ns),
            fits=fit_rows([self._fit(name, probe, now_ns) for probe in (told.probes if told else [])]),
            counters={},
            clock=None,
        )

    def _local_ns(self, name: str, now_ns: int) -> int:
        offset_ns, drift = self._clocks[name]
        return now_ns + offset_ns + round(drift * (now_ns - self._origin_ns))

    def _fit(self, name: str, probe: ProbeEdge, now_ns: int) -> EdgeFit:
        peer = probe.dst.partition("/")[0]
        return fit_of(
            probe,
            (self._local_ns(name, now_ns), self._local_ns(peer, now_ns)),
            (self._clocks[name][1], self._clocks[peer][1]),
            offset_ns=self._draw.gauss(0, NOISE_NS),
        )


def hello_of(host: str, nics: list[Nic], *, desired_version: int, boot_id: str = "boot") -> Hello:
    """What a host that exists in arithmetic only says of itself."""
    return Hello(
        host=host,
        boot_id=boot_id,
        version="0",
        dataplane_tag="tag",
        nics=nics,
        desired_version=desired_version,
        reads_changes=True,
        key_ids=[1],
    )


def fit_of(
    probe: ProbeEdge, clocks_ns: tuple[int, int], drifts: tuple[float, float], *, offset_ns: float
) -> EdgeFit:
    """The fit of an edge, right but for `offset_ns`; its own end's clock and drift come first, then its peer's."""
    (own_ns, peer_ns), (own_drift, peer_drift) = clocks_ns, drifts
    return EdgeFit(
        src=probe.src,
        dst=probe.dst,
        ref_local_ns=own_ns,
        offset_base_ns=peer_ns - own_ns,
        offset_ns=offset_ns,
        slope=(1 + peer_drift) / (1 + own_drift) - 1,
        margin_ns=5000.0,
        sigma_offset_ns=NOISE_NS,
        sigma_out_ns=NOISE_NS * 2**0.5,
        sigma_back_ns=NOISE_NS * 2**0.5,
        sigma_slope=2e-9,
        points=16.0,
        pure_share=1.0,
    )
