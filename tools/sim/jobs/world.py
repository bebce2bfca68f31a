"""Jobs in arithmetic: what a plan's ranks send when, each flow at a rate of its own, as bursts at both ends."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import BURST_ROW, EGRESS, INGRESS, packed_address
from tools.roce.collective.plan import Communicator, Plan, plan_collective
from tools.roce.flows import Endpoint
from tools.sim.jobs.running import OWD_NS, WELL, Call, Conditions, Span, run

Nic = tuple[str, str]
GAP_NS = 10_000_000
EPOCH_NS = 1_700_000_000 * 10**9


def ends_of(nics: Iterable[Nic]) -> dict[str, Endpoint]:
    """An address for each NIC, by its name."""
    return {f"{host}/{nic}": Endpoint(host, IPv4Address(_address(host, nic))) for host, nic in nics}


def named(nic: str) -> Nic:
    """A NIC by its host and interface."""
    host, _, ifname = nic.partition("/")
    return host, ifname


def _address(host: str, nic: str) -> str:
    return f"10.{int(nic[-1])}.{int(host[1:]) // 250}.{int(host[1:]) % 250 + 1}"


@dataclass(frozen=True)
class World:
    """What was sent, and by whom.

    Attributes:
        owners: the NIC that has each packed address.
        rings: bursts of each NIC, dtype BURST_ROW, in no order.
        jobs: of each job, its flows as (source NIC, target NIC, destination QPN).
        starts_ns: of each job, when its first rank began each iteration, on the timeline.
        calls: of each job what each of its ranks did in its iterations, in ns from `EPOCH_NS`.
    """

    owners: dict[bytes, str]
    rings: dict[Nic, NDArray[np.void]]
    jobs: list[set[tuple[str, str, int]]]
    starts_ns: list[NDArray[np.int64]]
    calls: list[list[list[Call]]] = field(default_factory=list)


def play(
    jobs: Sequence[Plan],
    ends: dict[str, Endpoint],
    seconds: float,
    *,
    seed: int = 1,
    conditions: Sequence[Conditions] = (),
) -> World:
    """Let jobs run beside each other, without getting into each other's way.

    Args:
        jobs: what their ranks do.
        ends: where NICs are, by name.
        seconds: until when.
        seed: draws when jobs begin, in the first second, and how ranks vary.
        conditions: what is done to the first ones.
    """
    names = {str(end.address): name for name, end in ends.items()}
    rows: dict[Nic, list[NDArray[np.void]]] = {}
    flows: list[set[tuple[str, str, int]]] = []
    starts: list[NDArray[np.int64]] = []
    calls: list[list[list[Call]]] = []
    for number, plan in enumerate(jobs):
        done = conditions[number] if number < len(conditions) else WELL
        ran = run(plan, round(seconds * 1e9), random.Random(f"{seed} {number}"), done)
        starts.append(EPOCH_NS + ran.starts_ns)
        calls.append(ran.calls)
        flows.append(set())
        for flow, sent in zip(plan.flows, ran.spans, strict=True):
            src, dst = (names[str(end.address)] for end in (flow.source, flow.target))
            flows[-1].add((src, dst, flow.remote_qpn))
            for nic, far, direction, late_ns in ((src, dst, EGRESS, 0), (dst, src, INGRESS, OWD_NS)):
                addr = packed_address(str(ends[far].address))
                rows.setdefault(named(nic), []).append(
                    _bursts(sent, addr, flow.remote_qpn, direction, late_ns)
                )
    owners = {packed_address(address): name for address, name in names.items()}
    return World(owners, {nic: np.concatenate(parts) for nic, parts in rows.items()}, flows, starts, calls)


def spoiled(world: World, rng: np.random.Generator) -> World:
    """The same where one burst in ten is divided, and one in twenty not told of, each end by itself."""
    rings = {}
    for nic, rows in world.rings.items():
        kept = rows[rng.random(len(rows)) >= 0.05]
        first, second = kept[rng.random(len(kept)) < 0.1], kept[:0]
        second = first.copy()
        middle = first["start_ns"] + (rng.random(len(first)) * (first["end_ns"] - first["start_ns"])).astype(
            np.int64
        )
        second["start_ns"], second["bytes"] = middle, first["bytes"] // 2
        rings[nic] = np.concatenate([kept, second])
    return replace(world, rings=rings)


def with_noise(world: World, rng: np.random.Generator, per_nic: int, seconds: float) -> World:
    """The same with flows in no rhythm between any NICs beside, each a job of its own."""
    rings, jobs = dict(world.rings), list(world.jobs)
    addresses = {nic: addr for addr, nic in world.owners.items()}
    names = ["/".join(nic) for nic in rings]
    for src in names:
        for dst in rng.choice([name for name in names if name != src], per_nic, replace=False).tolist():
            starts = np.cumsum(rng.exponential(0.4, round(seconds / 0.4))) * 1e9
            spans = [(round(at), round(at + 3e7), 10**7) for at in starts.tolist()]
            qpn = int(rng.integers(2, 1 << 24))
            jobs.append({(src, dst, qpn)})
            for nic, far, direction in ((src, dst, EGRESS), (dst, src, INGRESS)):
                key = named(nic)
                rings[key] = np.concatenate([rings[key], _bursts(spans, addresses[far], qpn, direction, 0)])
    return replace(world, rings=rings, jobs=jobs)


def micro_batches(
    batches: int, compute_ms: float, last_ms: float, seconds: float, *, jitter: float = 0.02, seed: int = 1
) -> World:
    """A job of two pipelines of four stages that sends after each micro-batch, and between the pipelines after the last one."""
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, 9)])
    rng, names = random.Random(seed), list(ends)
    small: list[Span] = []
    large: list[Span] = []
    starts: list[int] = []
    at_ns = 0
    while at_ns < seconds * 1e9:
        starts.append(at_ns)
        for _ in range(batches):
            at_ns += round(compute_ms * 1e6 * rng.uniform(1 - jitter, 1 + jitter))
            small.append((at_ns, at_ns + 40_000_000, 50_000_000))
        large.append((at_ns, at_ns + round(last_ms * 1e6), round(last_ms * 1e6)))
        at_ns = large[-1][1]
    pairs = [(names[i], names[i + 1], small) for i in range(7) if i != 3]
    pairs += [(names[i], names[(i + 4) % 8], large) for i in range(8)]
    addresses = {name: packed_address(str(end.address)) for name, end in ends.items()}
    rows: dict[Nic, list[NDArray[np.void]]] = {}
    for qpn, (src, dst, spans) in enumerate(pairs, 100):
        later = rng.randrange(30_000_000)
        sent = [(begin + later, end + later, size) for begin, end, size in spans]
        rows.setdefault(named(src), []).append(_bursts(sent, addresses[dst], qpn, EGRESS, 0))
        rows.setdefault(named(dst), []).append(_bursts(sent, addresses[src], qpn, INGRESS, OWD_NS))
    flows = {(src, dst, qpn) for qpn, (src, dst, _) in enumerate(pairs, 100)}
    rings = {nic: np.concatenate(parts) for nic, parts in rows.items()}
    owners = {address: name for name, address in addresses.items()}
    return World(owners, rings, [flows], [EPOCH_NS + np.array(starts, np.int64)])


def job(
    ends: dict[str, Endpoint], collective: str, ranks: Sequence[str], compute_ms: float, **settings: object
) -> Plan:
    """A job of one communicator."""
    size = int(settings.pop("buffer_bytes", 50_000_000))  # type: ignore[call-overload]
    one = Communicator(
        name="data",
        collective=collective,
        ranks=tuple(ranks),
        buffer_bytes=size,
        compute_ns=round(compute_ms * 1e6),
    )
    return plan_collective(ends, [one], **settings)  # type: ignore[arg-type]


def _bursts(spans: Sequence[Span], addr: bytes, qpn: int, direction: int, late_ns: int) -> NDArray[np.void]:
    merged: list[list[int]] = []
    for begin, end, size in spans:
        if merged and begin - merged[-1][1] <= GAP_NS:
            merged[-1][1], merged[-1][2] = end, merged[-1][2] + size
        else:
            merged.append([begin, end, size])
    rows = np.zeros(len(merged), BURST_ROW)
    rows["addr"] = np.frombuffer(addr, np.uint8)
    rows["qpn"], rows["direction"] = qpn, direction
    for i, (begin, end, size) in enumerate(merged):
        rows[i]["start_ns"], rows[i]["end_ns"] = EPOCH_NS + begin + late_ns, EPOCH_NS + end + late_ns
        rows[i]["bytes"], rows[i]["packets"] = size, -(-size // 4096)
    return rows
