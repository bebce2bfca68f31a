"""Flows of an audit's throughput by perftest: each on the path of a source port, over one spine and then another.

First the dataplane chooses the path, then the verbs shim, as on NICs whose hardware sends.

What an agent runs is run for both ends by this process, as emulated Python takes a minute to start.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cwdp.agent.flows.caps import Caps
from cwdp.agent.flows.perftest import Limits, Perftest
from cwdp.agent.flows.protocol import ProgramFlow, ProgramOrder, ProgramTold
from cwdp.agent.steering.steering import DesiredSteering
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import Steering
from cwdp.rdma.libraries import VERBS, library
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.verbs_agents import ports_by_spine

LASTS_S, BEGIN_S = 24.0, 10.0
LIMITS = Limits(margin_s=8, pinned_s=7.0, connect_s=60.0, late_s=60.0, ack_timer=21)
"""The machine is emulated, and slow."""

CAP_BPS = 8_000_000
"""Of links of 20 Mbit/s."""

NS_PER_S = 1_000_000_000
_GONE_S = 10.0


class Planned(NamedTuple):
    """A flow: over which of the paths, chosen by what, held to which rate (0 for none)."""

    way: int
    by_shim: bool = False
    cap_bps: int = 0


PLANNED = (Planned(0, cap_bps=CAP_BPS), Planned(1), Planned(0, by_shim=True))


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Flows, one after the other; what was told, sent by which spine, and left steered or in slices."""
    ways = list(ports_by_spine(bench.counters, bench.source, bench.target, "l2").items())
    return {"rounds": [_round(bench, number, *ways[one.way], one) for number, one in enumerate(PLANNED, 1)]}


def _round(bench: Bench, number: int, spine: str, sport: int, planned: Planned) -> dict[str, Any]:
    ends = ((bench.source, bench.target, True), (bench.target, bench.source, False))
    flows = [(host, _flow(host, peer, number, sport=sport, sends=sends)) for host, peer, sends in ends]
    with recorded(bench) as record:
        before = bench.counters.sent_to("l2")
        told = asyncio.run(_both(flows, planned))
        after = bench.counters.sent_to("l2")
        record.update({"spine": spine, "sport": sport, "cap_bps": planned.cap_bps})
        record["told"] = [msgspec.to_builtins(one) for one in told]
        record["packets_by_spine"] = {name: after[name] - before[name] for name in after}
        with Maps(tree.here(bench.source.ifname)) as maps:
            record["left_steered"] = len(Steering(maps).all())
            record["left_enforcer"] = int(maps.slice_table["enforcer"][0])
    return record


async def _both(flows: Sequence[tuple[RdmaHost, ProgramFlow]], planned: Planned) -> list[ProgramTold]:
    return await asyncio.gather(*(_made(host, flow, planned) for host, flow in flows))


async def _made(host: RdmaHost, flow: ProgramFlow, planned: Planned) -> ProgramTold:
    """An end of a flow, as an agent makes it."""
    steering = DesiredSteering([host.ifname], lambda *why: print(*why, flush=True))
    steering.want([], None, [])
    following = asyncio.create_task(steering.follow())
    order = ProgramOrder(
        number=flow.id,
        begin_s=BEGIN_S,
        begin_at_ns=time.monotonic_ns() + round(BEGIN_S * NS_PER_S),
        lasts_s=LASTS_S,
        cap_bps=planned.cap_bps,
        flows=[flow],
    )
    with_dataplane = [] if planned.by_shim else [host.ifname]
    caps = Caps(with_dataplane if flow.sends and planned.cap_bps else [])
    await asyncio.to_thread(caps.hold, host.ifname, [flow.peer_addr], planned.cap_bps)
    [told] = await Perftest(with_dataplane, steering, LIMITS, shim=library(VERBS)).run(order)
    await asyncio.to_thread(caps.let_go, host.ifname)
    await asyncio.sleep(_GONE_S)
    following.cancel()
    return told


def _flow(host: RdmaHost, peer: RdmaHost, number: int, *, sport: int, sends: bool) -> ProgramFlow:
    return ProgramFlow(
        id=number,
        nic=host.ifname,
        local_addr=str(host.ipv4),
        peer_addr=str(peer.ipv4),
        sends=sends,
        sport=sport,
    )
