"""`python -m tools.lab.traffic.load`: fill the fabric of a lab to a share of its rate with RoCEv2-shaped traffic.

Every NIC sends to all NICs below other leaves, over many source ports, so that ECMP spreads the frames evenly over
the spines. Arrivals are Poisson: all NICs share one process, each frame drawn for a NIC at random, which is the same
as an independent process per NIC. The process is drawn in absolute time, so a late wake-up never lowers the rate.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import click
import numpy as np
import numpy.typing as npt

from cwdp.errors import ConfigError
from tools.errors import exit_on_error
from tools.lab.lab import Host, Lab
from tools.lab.network.netns import netns_enter
from tools.lab.params import SHARE
from tools.lab.topology import Nic
from tools.lab.traffic.frames import ROCE_PORT, Address, FrameSender, header_pool

_TICK_S = 0.001
_CHUNK_S = 1.0
_FLOWS_PER_NIC = 8192
_MIN_FRAME_BYTES = 128
_UDP_NO_CHECK6_RX = 102
_SO_ATTACH_FILTER = 26
_BPF_RET_NOTHING = (0x06, 0, 0, 0)  # classic BPF: keep no byte of any packet


@dataclass(frozen=True)
class LoadResult:
    """What a run sent."""

    seconds: float
    offered_bps: float
    sent_frames: int
    refused_frames: int
    sent_bytes: int
    cpu_seconds: float


class Load:
    """A load on a lab that is up; a context manager that holds the sockets.

    Args:
        lab: the lab.
        share: of each NIC's rate, or of its part of the leaf's uplinks where that is less; 0 to 1.
        frame_bytes: length of every frame with its Ethernet header; by default the longest that the MTU allows.
        ipv6: send IPv6 instead of IPv4.
        seed: draws flows and arrivals.
        port: UDP destination port; with another than RoCEv2's nobody takes the frames for queue pairs'.
    """

    def __init__(
        self,
        lab: Lab,
        share: float,
        *,
        frame_bytes: int | None = None,
        ipv6: bool = False,
        seed: int = 1,
        port: int = ROCE_PORT,
    ) -> None:
        self._lab = lab
        self._ipv6 = ipv6
        self._port = port
        self._rng = np.random.default_rng(seed)
        self._frame_bytes = frame_bytes or lab.spec.frame_bytes
        if not _MIN_FRAME_BYTES <= self._frame_bytes <= lab.spec.frame_bytes:
            raise ConfigError(
                f"frames of {self._frame_bytes} bytes do not fit the lab",
                f"Give {_MIN_FRAME_BYTES} to {lab.spec.frame_bytes} bytes.",
            )
        self._nics = [(host, nic) for host in lab.hosts for nic in host.nics]
        self.nic_bps = share * _bottleneck_bps(lab)
        self._senders: list[FrameSender] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for host in self._lab.hosts:
            self._stack.enter_context(_sink(host, self._port))
        for host, nic in self._nics:
            sender = FrameSender(host.netns, nic.name, self._headers(host, nic), self._frame_bytes)
            self._stack.callback(sender.close)
            self._senders.append(sender)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, seconds: float) -> LoadResult:
        """Send for `seconds`; return what was sent."""
        cpu_start, start = time.process_time(), time.perf_counter()
        for arrivals_s, senders in self._arrivals(seconds):
            self._send_chunk(start, arrivals_s, senders)
        sent = sum(sender.sent for sender in self._senders)
        return LoadResult(
            seconds=time.perf_counter() - start,
            offered_bps=self.nic_bps * len(self._nics),
            sent_frames=sent,
            refused_frames=sum(sender.refused for sender in self._senders),
            sent_bytes=sent * self._frame_bytes,
            cpu_seconds=time.process_time() - cpu_start,
        )

    def _arrivals(self, seconds: float) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]]:
        """Yield arrival times since the start (s) and the index of the sender of each, a second at a time.

        Given their number, the arrivals of a Poisson process are uniform over the interval.
        """
        rate_hz = self.nic_bps * len(self._nics) / (8 * self._frame_bytes)
        begin = 0.0
        while begin < seconds:
            end = min(begin + _CHUNK_S, seconds)
            count = self._rng.poisson(rate_hz * (end - begin))
            times = np.sort(self._rng.uniform(begin, end, size=count))
            yield times, self._rng.integers(len(self._nics), size=count)
            begin = end

    def _send_chunk(
        self, start: float, arrivals_s: npt.NDArray[np.float64], senders: npt.NDArray[np.intp]
    ) -> None:
        position = 0
        while position < len(arrivals_s):
            now = time.perf_counter() - start
            due = int(np.searchsorted(arrivals_s, now))
            for sender, count in enumerate(np.bincount(senders[position:due]).tolist()):
                self._senders[sender].send(count)
            position = due
            time.sleep(max(0.0, now + _TICK_S - (time.perf_counter() - start)))

    def _headers(self, host: Host, nic: Nic) -> npt.NDArray[np.uint8]:
        gateway_mac = self._lab.topology.link(f"{host.name}-{nic.leaf}").b.mac
        others = [(other, far) for other, far in self._nics if other is not host]
        remote = [far for _, far in others if far.leaf != nic.leaf] or [far for _, far in others]
        if not remote:
            raise ConfigError(
                "a lab with one host has nobody to send to", "Raise one with more --hosts or --leaves."
            )
        targets = [Address(gateway_mac, far.ipv6 if self._ipv6 else far.ipv4) for far in remote]
        source = Address(nic.mac, nic.ipv6 if self._ipv6 else nic.ipv4)
        return header_pool(source, targets, self._frame_bytes, _FLOWS_PER_NIC, self._rng, port=self._port)


def _bottleneck_bps(lab: Lab) -> float:
    """Return a NIC's rate, or its even part of the leaf's or the pod's uplinks where that is less (oversubscription)."""
    spec = lab.spec
    uplinks_bps = spec.spines * spec.spine_rate_bps
    limits_bps = [spec.rate_bps, uplinks_bps / spec.nics_per_leaf]
    if spec.cores:
        limits_bps.append(spec.cores * uplinks_bps / (spec.leaves * spec.nics_per_leaf))
    return min(limits_bps)


@contextmanager
def _sink(host: Host, port: int) -> Iterator[None]:
    """Hold a port of a host open and throw away what comes, so that no ICMP error goes back."""
    with ExitStack() as stack, netns_enter(host.netns):
        for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - all NICs
            sink = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            _throw_all_away(sink)
            if family == socket.AF_INET6:
                sink.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sink.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_RX, 1)
            with suppress(OSError):  # somebody holds the port already, which serves as well
                sink.bind((any_address, port))
        held = stack.pop_all()
    with held:
        yield


def _throw_all_away(sink: socket.socket) -> None:
    program = np.frombuffer(struct.pack("=HBBI", *_BPF_RET_NOTHING), dtype=np.uint8)
    sink.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxQ", 1, program.ctypes.data))


@click.command()
@click.option("--name", default="cwdp", show_default=True, help="The lab's name.")
@click.option(
    "--load", "share", type=SHARE, default="0.8", show_default=True, help="Share of each NIC's rate."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True)
@click.option("--frame", "frame_bytes", type=int, help="Bytes of every frame.  [default: the longest]")
@click.option("--ipv6", is_flag=True, help="Send IPv6.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=ROCE_PORT,
    show_default=True,
    help="UDP destination port.",
)
def main(*, name: str, share: float, seconds: float, frame_bytes: int | None, ipv6: bool, port: int) -> None:
    """Fill a lab's fabric to a share of its rate, then print what was sent as JSON."""
    # Woken late, it would send a burst that no queue holds: it goes before what it shares the processors with.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with Load(Lab.open(name), share, frame_bytes=frame_bytes, ipv6=ipv6, port=port) as load:
        click.echo(json.dumps(asdict(load.run(seconds))))


if __name__ == "__main__":
    with exit_on_error():
        main()
