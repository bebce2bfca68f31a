"""Flows by perftest's `ib_write_bw`: a server at each end that receives, a client at each that sends.

The path of a queue pair is chosen by the NIC's dataplane, as soon as the program has said which number the far end has. What is
carried before that is not measured: perftest leaves out the first second, and the last. Where the NIC's hardware sends by itself the
verbs shim has the queue pair connected with the flow label of the port, without the agent.
"""

import asyncio
import contextlib
import math
import re
import shutil
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Protocol

from cwdp.agent.flows.programs import ProgramError, given_up, last_words, started
from cwdp.agent.flows.protocol import ProgramFlow, ProgramOrder, ProgramTold
from cwdp.agent.verbs.orders import VerbsSource
from cwdp.agent.verbs.sources import sources
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.rdma.libraries import VERBS
from cwdp.rdma.sport import SPORT_MIN
from cwdp.shared.addresses import read_address, unmapped
from cwdp.shared.bus.messages import SteerQp

PROGRAM, UNBUFFERED = "ib_write_bw", ("stdbuf", "-oL")
PORTS = range(18_600, 30_600)
"""Where servers listen, each where the flow's number says."""

MESSAGE_BYTES, DEPTH = 65_536, 16
"""1 MiB under way: the bandwidth and delay of 400 Gbit/s and 20 us, and gone in the margin where a link is slow."""

TRAFFIC_CLASS = 26 << 2
"""DSCP 26, as probes have it."""

AGAIN_S, LOOK_S = 0.2, 0.02
OVER_CAP = 1.1
MOST_LINES, MOST_WORDS = 1_000, 3
"""Of what the program says, and of its standard error in a trouble: the first of these says what was amiss."""

NOT_INSTALLED = f"{PROGRAM} is not installed on this host (perftest)"
NOT_PINNED = (
    f"the paths of this NIC's queue pairs cannot be chosen: it has no dataplane, and {VERBS} is not installed"
)
NS_PER_S = 1_000_000_000

_REMOTE = re.compile(rb"^\s*remote address:.*\bQPN (0x[0-9a-f]+)")
_ROW = re.compile(rb"^\s*(\d+)\s+(\d+)\s+[\d.]+\s+[\d.]+\s+[\d.]+\s*$")


@dataclass(frozen=True)
class Limits:
    """How long things may take.

    Attributes:
        margin_s: what is carried so long after the start and before the end is not measured.
        pinned_s: until a queue pair is on its path; less than the margin.
        connect_s: until a client finds its server.
        late_s: until a program ends once it has sent.
        ack_timer: after 4.096 us * 2^timer without an acknowledgement a queue pair sends again.
    """

    margin_s: int = 1
    pinned_s: float = 0.9
    connect_s: float = 5.0
    late_s: float = 5.0
    ack_timer: int = 14

    def lasts_s(self, order: ProgramOrder) -> int:
        """How long the program is told to send: in its whole seconds, more than both margins."""
        return max(2 * self.margin_s + 1, math.ceil(order.lasts_s))


class Steers(Protocol):
    """See `cwdp.agent.steering.steering.DesiredSteering`."""

    def pin(self, one: SteerQp) -> None:
        """Steer a queue pair, whatever is desired of it."""

    def unpin(self, one: SteerQp) -> None:
        """Do so no more."""


class Perftest:
    """Flows of RDMA devices.

    Args:
        nics: those that have a dataplane.
        steering: has the dataplane steer their queue pairs.
        limits: of time.
        shim: the library that programs load for the others; None where there is none.
    """

    def __init__(
        self,
        nics: Collection[str],
        steering: Steers,
        limits: Limits | None = None,
        *,
        shim: Path | None = None,
    ) -> None:
        self._nics, self._steering, self._limits, self._shim = nics, steering, limits or Limits(), shim

    async def run(self, order: ProgramOrder) -> Sequence[ProgramTold]:
        """Have the flows made, all at once; see `cwdp.agent.flows.runner.FlowProgram`.

        Raises:
            ProgramError: perftest is not installed.
        """
        if shutil.which(PROGRAM) is None:
            raise ProgramError(NOT_INSTALLED)
        found = await asyncio.to_thread(_sources, {flow.nic for flow in order.flows})
        return await asyncio.gather(*(self._end(order, flow, found) for flow in order.flows))

    async def _end(self, order: ProgramOrder, flow: ProgramFlow, found: Sequence[VerbsSource]) -> ProgramTold:
        try:
            self._require_path(flow)
            command = _command(order, flow, _source_of(flow, found), self._limits)
            if flow.nic not in self._nics:
                command = [*_below(self._shim, flow), *command, *_held_to(order, flow)]
            if flow.sends:
                return await self._send(order, flow, command)
            await self._receive(order, command)
        except ProgramError as why:
            return ProgramTold(id=flow.id, trouble=str(why))
        return ProgramTold(id=flow.id)

    def _require_path(self, flow: ProgramFlow) -> None:
        """Make sure that the path of a flow can be chosen; raises ProgramError."""
        if flow.nic not in self._nics and self._shim is None:
            raise ProgramError(NOT_PINNED)
        if flow.sport < SPORT_MIN:
            raise ProgramError(f"queue pairs have source ports from {SPORT_MIN} on")

    async def _send(self, order: ProgramOrder, flow: ProgramFlow, command: Sequence[str]) -> ProgramTold:
        """Connect as soon as the server listens, and send."""
        await asyncio.sleep(max(0, order.begin_at_ns - time.monotonic_ns()) / NS_PER_S)
        connect_until_s = time.monotonic() + self._limits.connect_s
        while True:
            steering = self._steering if flow.nic in self._nics else None
            client = _Client(flow, order.cap_bps, steering, self._limits)
            try:
                return await client.run([*command, flow.peer_addr], self._limits.lasts_s(order))
            except ProgramError:
                if client.has_connected or time.monotonic() > connect_until_s:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _receive(self, order: ProgramOrder, command: Sequence[str]) -> None:
        """Serve one client; that none comes is no trouble of this end.

        Raises:
            ProgramError: the server fails.
        """
        to_begin_s = max(0, order.begin_at_ns - time.monotonic_ns()) / NS_PER_S
        within_s = to_begin_s + self._limits.connect_s + self._limits.lasts_s(order) + self._limits.late_s
        async with started(command) as process:
            words = asyncio.create_task(last_words(process, MOST_WORDS))
            try:
                async with asyncio.timeout(within_s):
                    async for _ in _lines(process):
                        pass
                    last, status = await words, await process.wait()
            except TimeoutError:
                return
            finally:
                await given_up(words)
        if status:
            raise ProgramError(f"{PROGRAM} failed: {last or f'status {status}'}")


class _Client:
    """A run of the program that sends.

    Args:
        flow: which.
        cap_bps: of it; 0 for none.
        steering: chooses its path; None where that was done before.
        limits: of time.

    Attributes:
        has_connected: to the server.
    """

    def __init__(self, flow: ProgramFlow, cap_bps: int, steering: Steers | None, limits: Limits) -> None:
        self._flow, self._cap_bps, self._steering, self._limits = flow, cap_bps, steering, limits
        self.has_connected = False

    async def run(self, command: Sequence[str], lasts_s: int) -> ProgramTold:
        """What has arrived.

        Raises:
            ProgramError: it fails, does not end, or its path could not be chosen.
        """
        async with started(command) as process, contextlib.AsyncExitStack() as stack:
            words = asyncio.create_task(last_words(process, MOST_WORDS))
            stack.push_async_callback(given_up, words)
            within_s = lasts_s + self._limits.late_s
            try:
                async with asyncio.timeout(within_s):
                    row = await self._hear(process, stack)
                    last, status = await words, await process.wait()
            except TimeoutError:
                raise ProgramError(f"{PROGRAM} did not end within {within_s:g} s and was killed") from None
        if status:
            raise ProgramError(f"{PROGRAM} failed: {last or f'status {status}'}")
        if row is None:
            raise ProgramError(f"{PROGRAM} did not say what was carried")
        return self._told(int(row[1]) * int(row[2]), lasts_s - 2 * self._limits.margin_s)

    def _told(self, carried_bytes: int, took_s: int) -> ProgramTold:
        """What is told of so much; raises ProgramError where it is nothing, or more than the cap allows."""
        if carried_bytes == 0:
            raise ProgramError(f"{PROGRAM} carried no message of {MESSAGE_BYTES} bytes within {took_s} s")
        if self._cap_bps and 8 * carried_bytes > OVER_CAP * self._cap_bps * took_s:
            raise ProgramError(f"{PROGRAM} did not keep to the cap of {self._cap_bps} bit/s")
        return ProgramTold(id=self._flow.id, carried_bytes=carried_bytes, took_s=took_s)

    async def _hear(self, process: Process, stack: contextlib.AsyncExitStack) -> "re.Match[bytes] | None":
        """The row of the result; the queue pair is pinned as soon as its number is known, until the stack is left."""
        row = None
        async for line in _lines(process):
            remote = _REMOTE.match(line)
            if remote is not None:
                self.has_connected = True
                await self._pin(int(remote[1], 16), stack)
            row = _ROW.match(line) or row
        return row

    async def _pin(self, qpn: int, stack: contextlib.AsyncExitStack) -> None:
        """Have the queue pair take the flow's path, and see that it does."""
        flow = self._flow
        if self._steering is None:
            return
        steer = SteerQp(nic=flow.nic, dst_addr=flow.peer_addr, qpn=qpn, sport=flow.sport)
        self._steering.pin(steer)
        stack.callback(self._steering.unpin, steer)
        if not await asyncio.to_thread(_takes, steer, self._limits.pinned_s):
            raise ProgramError(
                f"the dataplane of {flow.nic} did not take its queue pair to port {flow.sport}"
            )


async def _lines(process: Process) -> AsyncIterator[bytes]:
    """What a program says, line by line.

    Raises:
        ProgramError: it says too much.
    """
    assert process.stdout is not None
    for _ in range(MOST_LINES):
        try:
            line = await process.stdout.readline()
        except ValueError as error:
            raise ProgramError(f"{PROGRAM} said a line that is too long") from error
        if not line:
            return
        yield line
    raise ProgramError(f"{PROGRAM} said more than {MOST_LINES} lines")


def _command(order: ProgramOrder, flow: ProgramFlow, source: VerbsSource, limits: Limits) -> list[str]:
    """The program at one end; the client is told besides where the server is."""
    options = {
        "-d": source.device,
        "-i": source.port,
        "-x": source.gid_index,
        "-p": PORTS[flow.id % len(PORTS)],
        "-s": MESSAGE_BYTES,
        "-u": limits.ack_timer,
        "-t": DEPTH,
        "-D": limits.lasts_s(order),
        "-f": limits.margin_s,
        "--tclass": TRAFFIC_CLASS,
        "--source_ip": flow.local_addr,
    }
    words = [
        f"{name}={value}" if name.startswith("--") else f"{name}{value}" for name, value in options.items()
    ]
    return [*UNBUFFERED, PROGRAM, "-F", "--report_gbits", *words]


def _held_to(order: ProgramOrder, flow: ProgramFlow) -> list[str]:
    """How a program holds itself to a cap."""
    if not (order.cap_bps and flow.sends):
        return []
    return ["--rate_limit_type=SW", "--rate_units=g", f"--rate_limit={order.cap_bps / 1e9}"]


def _below(shim: Path | None, flow: ProgramFlow) -> list[str]:
    """How a program is started whose queue pairs take a port by themselves, whatever the agent wants of others."""
    return ["env", f"LD_PRELOAD={shim}", "CWDP_VERBS=off", f"CWDP_VERBS_SPORT={flow.sport}"]


def _sources(nics: Collection[str]) -> list[VerbsSource]:
    """What NICs can send from; nothing where a device goes meanwhile."""
    try:
        return sources(nics)
    except (OSError, ValueError):
        return []


def _source_of(flow: ProgramFlow, found: Sequence[VerbsSource]) -> VerbsSource:
    """The GID of a flow's own address; raises ProgramError where there is none."""
    local = read_address(flow.local_addr)
    for source in found:
        if source.nic == flow.nic and unmapped(IPv6Address(source.gid)) == local:
            return source
    raise ProgramError(f"no RDMA device has a RoCE v2 GID of {flow.nic}'s address {local}")


def _takes(steer: SteerQp, within_s: float) -> bool:
    """Whether a queue pair sends from the port that it is steered to, within a while."""
    until_s = time.monotonic() + within_s
    words = address_words(read_address(steer.dst_addr))
    try:
        with Maps(tree.here(steer.nic)) as maps:
            records = maps.qps[Direction.EGRESS]
            while time.monotonic() < until_s:
                mine = (records["key"]["qpn"] == steer.qpn) & (records["key"]["addr"] == words).all(axis=1)
                if (mine & (records["used_sport"] == steer.sport)).any():
                    return True
                time.sleep(LOOK_S)
    except OSError:
        pass
    return False
