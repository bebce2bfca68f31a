"""What an agent costs, and whether it loses results: one agent and ten peers in a lab of its own.

The peers have the dataplane and no agent, since probes are answered in XDP; a stand-in for the manager gives the
agent its schedule and its clock. On veth a probe's whole way through the fabric and back runs inside the sender's
system call: `agent_cpu_with_lab_fabric` has that in it, with the bare system calls as its reference; `agent_cpu` is
what is left without them.
"""

import asyncio
import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from cwdp.agent.probing.schedule import make_schedule
from cwdp.agent.probing.sender import BatchSender
from cwdp.dataplane.abi import ROCE_PORT
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import LabError
from cwdp.shared.bus.messages import (
    ClockLine,
    ClockUpdate,
    Desired,
    DriftPrior,
    ProbeEdge,
    Report,
    nic_id,
)
from cwdp.shared.bus.subjects import down, up
from cwdp.shared.tasks import set_within
from manager.bus.connection import manager_bus
from manager.bus.nats_server import NatsServer
from manager.identity.authority import DEFAULT_POD, Authority
from tools.lab import Host, Lab, LabSpec, lifecycle, netns_enter
from tools.lab.network import netns
from tools.processes import processor_s, resident_bytes

SPEC = LabSpec(name="bench-agent", spines=2, hosts_per_leaf=6, rate_bps=10**9, spine_rate_bps=10**9)
PEERS = 10
PATHS = 8
FIRST_PORT = 50_000
BUS_PORT = 4222
KEY_ID = 1
CLOCK_BOUND_NS = 10.0
UPDATE_INTERVAL_S = 0.25
START_TIMEOUT_S = 20.0
SETTLE_S = 4.0
COST_S = 20.0
LOSS_S = 10.0
USUAL_PAIRS_PER_S = 1_000.0
MANY_PAIRS_PER_S = 10_000.0
SENDS_PER_S = 50
LOSSES = ("probes_lost", "probes_unsent", "pairs_held_back", "pairs_skipped")

Figure = dict[str, Any]


def figures() -> Iterator[Figure]:
    """Raise the lab, measure, and remove it.

    Raises:
        LabError: the lab cannot be raised, or the agent does not report.
    """
    lifecycle.up(SPEC)
    try:
        lab = Lab.open(SPEC.name)
        secret = secrets.token_bytes(16)
        with contextlib.ExitStack() as stack:
            for host in lab.hosts:
                stack.enter_context(_answering(host, secret))
            bare = _bare_send_share(lab)
            yield from netns.in_thread(lambda: _measure(lab, secret, bare))
    finally:
        lifecycle.down(SPEC.name)


@contextlib.contextmanager
def _answering(host: Host, secret: bytes) -> Iterator[None]:
    """Load a host's dataplane, with the key, on a clock that is synced: all share the machine's."""
    with netns_enter(host.netns):
        loaded = loader.load(host.nics[0].name)
    with Maps(loaded.where) as maps:
        maps.set_key(KEY_ID, secret)
        line = {"ref_local_ns": time.monotonic_ns(), "offset_ns": 0}
        maps.write_clock(**line, drift=0.0, bound_ns=CLOCK_BOUND_NS, bound_drift=0.0)
        yield


def _edges(lab: Lab, pairs_per_s: float) -> list[ProbeEdge]:
    own, *peers = lab.hosts[: PEERS + 1]
    ports = list(range(FIRST_PORT, FIRST_PORT + PATHS))
    return [
        ProbeEdge(
            src=nic_id(own.name, own.nics[0].name),
            dst=nic_id(peer.name, peer.nics[0].name),
            src_addr=str(own.nics[0].ipv4),
            dst_addr=str(peer.nics[0].ipv4),
            sports=ports,
            reply_sports=ports[::-1],
            pairs_per_s=pairs_per_s / len(peers),
        )
        for peer in peers
    ]


def _bare_send_share(lab: Lab) -> float:
    """The share of a core that the system calls alone take which send the usual probes."""
    host = lab.hosts[0]
    rng = np.random.default_rng()
    schedule = make_schedule(_edges(lab, USUAL_PAIRS_PER_S), key_id=KEY_ID, port=ROCE_PORT, rng=rng)
    family = schedule.families[0]
    with netns_enter(host.netns):
        sender = BatchSender(host.nics[0].name, family.family, family.templates)
    rows = len(family.templates)
    batch = 2 * int(USUAL_PAIRS_PER_S / SENDS_PER_S)
    spent_ns = sends = 0
    for start in [*range(0, rows - batch + 1, batch)] * (SENDS_PER_S * batch // rows):
        family.templates["packet"]["probe"]["seq"][start : start + batch] = np.arange(batch) + sends * batch
        before_ns = time.thread_time_ns()
        sender.send(start, start + batch)
        spent_ns += time.thread_time_ns() - before_ns
        sends += 1
        time.sleep(1 / SENDS_PER_S)
    sender.close()
    return spent_ns * 1e-9 / (sends / SENDS_PER_S)


def _measure(lab: Lab, secret: bytes, bare: float) -> list[Figure]:
    netns.enter_for_good(lab.mgmt_netns)
    return asyncio.run(_figures(lab, secret, bare))


async def _figures(lab: Lab, secret: bytes, bare: float) -> list[Figure]:
    authority = Authority.new()
    async with _StandIn(lab, authority) as manager:
        agent = _start_agent(lab, secret, authority)
        try:
            await manager.schedule(USUAL_PAIRS_PER_S)
            usual = _Usage(agent.pid)
            await asyncio.sleep(COST_S)
            share, rss_bytes = usual.cpu_share(), usual.rss_bytes()
            before = await manager.schedule(MANY_PAIRS_PER_S)
            await asyncio.sleep(LOSS_S)
            after = manager.counters()
        finally:
            agent.terminate()
            await asyncio.to_thread(agent.wait)
    during = {name: after[name] - before[name] for name in ("probes_answered", *LOSSES)}
    lost = sum(during[name] for name in LOSSES)
    return [
        _figure("agent_cpu_with_lab_fabric", share, "cores", bare, 0.05),
        _figure("agent_cpu", share - bare, "cores", share, 0.05),
        _figure("agent_rss", rss_bytes / (1 << 20), "MiB", None, 80),
        _figure("agent_results_lost_at_10000_pairs_per_s", lost, "probes", during, 0),
    ]


def _figure(name: str, value: float, unit: str, reference: Any, target: float) -> Figure:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "reference": reference,
        "target": target,
        "met": value <= target,
    }


def _start_agent(lab: Lab, secret: bytes, authority: Authority) -> "subprocess.Popen[bytes]":
    host = lab.hosts[0]
    keys, config = lab.run_dir / "keys.toml", lab.run_dir / "agent.toml"
    credential = lab.run_dir / "agent.creds"
    authority.host_credential(host.name).save(credential)
    keys.touch(mode=0o600)
    keys.write_text(f'send = {KEY_ID}\n[[key]]\nid = {KEY_ID}\nsecret = "{secret.hex()}"\n')
    config.write_text(
        f'host = "{host.name}"\nnics = ["{host.nics[0].name}"]\n'
        f'nats = "nats://{lab.mgmt_address}:{BUS_PORT}"\ncredential = "{credential}"\nkeys = "{keys}"\n'
    )
    with (lab.run_dir / "agent.log").open("wb") as log:
        argv = [sys.executable, "-m", "cwdp", "agent", "run", "--config", str(config)]
        return lab.popen(host.name, argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class _StandIn:
    """What the agent sees of a manager: a bus, a schedule, and a clock that needs no correction."""

    def __init__(self, lab: Lab, authority: Authority) -> None:
        self._lab = lab
        self._host = lab.hosts[0].name
        self._version = 0
        self._report: Report | None = None
        self._reported = asyncio.Event()
        self._server = NatsServer(str(lab.mgmt_address), BUS_PORT, lab.run_dir, authority)
        self._bus = manager_bus(self._server.url, authority, name="bench")
        self._bus.subscribe(up(DEFAULT_POD, self._host, "report"), Report, self._take)

    async def __aenter__(self) -> Self:
        await self._server.start()
        self._bus.start()
        self._clock = asyncio.create_task(self._keep_clock())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._clock.cancel()
        await asyncio.gather(self._clock, return_exceptions=True)
        await self._bus.close()
        await self._server.stop()

    async def schedule(self, pairs_per_s: float) -> dict[str, int]:
        """Have the agent send at a rate; its counters, once that has settled.

        Raises:
            LabError: it does not report.
        """
        self._version += 1
        probes = _edges(self._lab, pairs_per_s)
        self._bus.put(Desired(host=self._host, version=self._version, probes=probes))
        if not await set_within(self._reported, START_TIMEOUT_S):
            said = (self._lab.run_dir / "agent.log").read_text()
            raise LabError("the agent does not report", said)
        await asyncio.sleep(SETTLE_S)
        return self.counters()

    def counters(self) -> dict[str, int]:
        """The agent's counters of its NIC as last reported."""
        assert self._report is not None
        return {name.rpartition(".")[2]: n for name, n in self._report.counters.items()}

    def _take(self, report: Report) -> None:
        if report.counters:
            self._report = report
            self._reported.set()

    async def _keep_clock(self) -> None:
        priors = [DriftPrior(dst=e.dst, slope=0.0, sigma=1e-9) for e in _edges(self._lab, 1.0)]
        for seq in range(sys.maxsize):
            line = ClockLine(
                ref_local_ns=time.monotonic_ns(),
                offset_base_ns=0,
                offset_ns=0.0,
                drift=0.0,
                bound_ns=CLOCK_BOUND_NS,
                bound_drift=0.0,
                state="synced",
            )
            update = ClockUpdate(host=self._host, timeline="bench", seq=seq, line=line, priors=priors)
            self._bus.publish(down(DEFAULT_POD, self._host, "clock"), update)
            await asyncio.sleep(UPDATE_INTERVAL_S)


class _Usage:
    """What a process uses from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = (time.monotonic(), processor_s(pid))

    def cpu_share(self) -> float:
        """User and system time since then, as a share of one core."""
        since, cpu_s = self._began
        return (processor_s(self._pid) - cpu_s) / (time.monotonic() - since)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return resident_bytes(self._pid)
