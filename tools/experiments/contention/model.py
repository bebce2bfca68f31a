"""The experiment `contention`: two jobs whose queue pairs collide, placed by ECMP, by two rivals and by cwdp.

Every host is a member of one of two all-to-all jobs, interleaved over the hosts, with one queue pair to each other
member. A NIC takes turns among its queue pairs, so each sends at an even part of `OFFERED` of the link; the rest of
the link is for acknowledgements and probes. Spine links have the rate at which the best placement of whole queue pairs
just fits, unless given. A step of a collective ends with its slowest transfer: a member's goodput is what its slowest
queue pair has, times their number; the experiment's is that of the slowest member.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from tools.experiments import measure
from tools.experiments.collectives.jobs import TIMEOUT_NS
from tools.experiments.contention.rivals import MakeChooser
from tools.experiments.contention.rivals.hands import Hands
from tools.experiments.contention.rivals.hopper import Hopper
from tools.experiments.contention.rivals.plb import Plb
from tools.experiments.optimum import fair_optimum_bps, fitting_spine_flows, link_capacities
from tools.experiments.runs import send
from tools.lab import Lab, LabSpec
from tools.lab.topology import Topology
from tools.roce.flows import Flow
from tools.roce.jobs import Job, interleaved, pair_flows

OFFERED = 0.94
SETTLE_S = 3.0
"""From the first packet to where goodput counts."""

SECONDS = 9.0
WINDOW = 6
MESSAGE_BYTES = 64 * 1024
QUEUE_BYTES = 512 * 1024
RATE_BPS = 15_000_000
"""Of the NICs: more, and the processors of a small machine would be the limit."""

MTU = 4096


class Arm(StrEnum):
    """How queue pairs find their paths."""

    ECMP = "ecmp"
    PLB = "plb"
    HOPPER = "hopper"
    CWDP = "cwdp"


CHOOSERS: dict[Arm, MakeChooser] = {Arm.PLB: Plb, Arm.HOPPER: Hopper}


@dataclass(frozen=True)
class Setting:
    """What is the same for all arms and seeds.

    Attributes:
        spec: of the lab.
        jobs: the two.
        slow_bps: links with another rate than the spec's, by name.
        flow_bps: what each queue pair offers, as links count it.
        optimum_bps: payload that every queue pair can have at the same time, by linear program.
        mtu: payload of a full packet, in bytes.
        window: of each queue pair, in packets.
    """

    spec: LabSpec
    jobs: tuple[Job, ...]
    slow_bps: dict[str, float]
    flow_bps: float
    optimum_bps: float
    mtu: int
    window: int

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Source and target of each queue pair."""
        return [pair for job in self.jobs for pair in job.pairs]

    @property
    def transfers(self) -> int:
        """Queue pairs of a member, of the job with the fewest."""
        return min(len(job.members) for job in self.jobs) - 1

    @property
    def base_ns(self) -> float:
        """See `unqueued_ns`."""
        return unqueued_ns(self.spec, self.mtu)

    def flows(self, seed: int) -> list[Flow]:
        """The queue pairs; their QPNs, and so their source ports, are drawn by the seed."""
        return pair_flows(
            Topology(self.spec),
            self.pairs,
            seed,
            mtu=self.mtu,
            rate_bps=round(self.flow_bps),
            window=self.window,
            timeout_ns=TIMEOUT_NS,
            message_bytes=MESSAGE_BYTES,
        )


def unqueued_ns(spec: LabSpec, mtu: int) -> float:
    """Delay of the longest path whose links are busy but hold no queue: a full frame at each of its ports."""
    frame_bits = 8 * (mtu + measure.HEADERS_BYTES)
    tiers = 3 if spec.cores else 2
    return 2e9 * frame_bits * (1 / spec.rate_bps + (tiers - 1) / spec.spine_rate_bps)


def make_setting(
    spec: LabSpec,
    *,
    spine_rate_bps: int | None,
    slow_share: float,
    offered: float = OFFERED,
    mtu: int = MTU,
    window: int = WINDOW,
) -> Setting:
    """Work out rates and the optimum.

    Args:
        spec: of the lab; the rate of the links between its switches is not looked at.
        spine_rate_bps: of these links, None for the rate at which the best placement just fits.
        slow_share: what the links of the first spine carry of what the others' do.
        offered: by each host, of its link.
        mtu: of each queue pair; see `Setting`.
        window: the same.
    """
    topology = Topology(spec)
    jobs = tuple(interleaved(topology.hosts))
    pairs = [pair for job in jobs for pair in job.pairs]
    most = max(len(job.members) for job in jobs) - 1
    if spine_rate_bps is None:
        fitting = fitting_spine_flows(topology, pairs, slow_share)
        spine_rate_bps = round(fitting * spec.rate_bps / most)
    spec = replace(spec, spine_rate_bps=spine_rate_bps)
    topology = Topology(spec)
    slow_bps = {}
    if slow_share < 1:
        slow_bps = {link.name: slow_share * spine_rate_bps for link in topology.links_of(topology.spines[0])}
    flow_bps = offered * spec.rate_bps / most
    frames_bps = fair_optimum_bps(topology, pairs, flow_bps, link_capacities(topology, slow_bps))
    optimum_bps = frames_bps * measure.payload_share(MESSAGE_BYTES, mtu)
    return Setting(spec, jobs, slow_bps, flow_bps, optimum_bps, mtu, window)


def run_arm(lab: Lab, setting: Setting, arm: Arm, seed: int, seconds: float = SECONDS) -> dict[str, Any]:
    """One arm with the queue pairs of one seed; a row of the result."""
    flows = setting.flows(seed)
    beside = None
    if arm in CHOOSERS:
        beside = Hands(lab, flows, CHOOSERS[arm], setting.base_ns, seed)
    result = send(lab, flows, seconds, beside)
    return {"arm": str(arm), "seed": seed} | summarise(setting, result)


def summarise(setting: Setting, result: measure.Result) -> dict[str, Any]:
    """What a run's result says, over the time after SETTLE_S."""
    deliveries = measure.Deliveries(result)
    each_bps = deliveries.mean_bps(SETTLE_S * 1e9, deliveries.end_ns)
    slowest_bps = float(each_bps.min())
    by_host: dict[str, float] = {}
    for flow, rate_bps in zip(result["flows"], each_bps, strict=True):
        by_host[flow["source"]] = by_host.get(flow["source"], 0.0) + float(rate_bps)
    return {
        "slowest_member_bps": slowest_bps * setting.transfers,
        "slowest_host_bps": min(by_host.values()),
        "sum_bps": float(each_bps.sum()),
        "optimum_share": slowest_bps / setting.optimum_bps,
        "idle_share": result["idle_share"],
        **measure.totals(result),
    }
