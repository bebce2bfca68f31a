"""From communicators to the flows and ranks of a run. No I/O."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from cwdp.errors import ConfigError
from tools.lab.topology import Topology
from tools.roce.collective.rank import Rank, RankStep, Stall
from tools.roce.collective.steps import COLLECTIVES, Step
from tools.roce.flows import Endpoint, Flow, drawn_flows
from tools.roce.patterns import shared_window

_SEED_BITS = 48


@dataclass(frozen=True, kw_only=True)
class Communicator:
    """Ranks that do a collective in each iteration.

    Attributes:
        name: tells communicators apart.
        collective: one of `COLLECTIVES`.
        ranks: the members' names, in order; each is of another host.
        buffer_bytes: of each member.
        compute_ns: what each member computes for it in an iteration.
    """

    name: str
    collective: str
    ranks: tuple[str, ...]
    buffer_bytes: int
    compute_ns: int = 0

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise ConfigError(
                f"there is no collective {self.collective!r}", f"Give one of {', '.join(COLLECTIVES)}."
            )
        if len(set(self.ranks)) < max(2, len(self.ranks)):
            raise ConfigError(
                f"the communicator {self.name} has the ranks {', '.join(self.ranks)}",
                "Give two ranks or more, each of them once.",
            )
        if self.buffer_bytes < 1:
            raise ConfigError(f"a buffer of {self.buffer_bytes} bytes", "Give 1 byte or more.")

    @property
    def message_bytes(self) -> int:
        """Length of each message; the last one of a buffer is filled up."""
        return -(-self.buffer_bytes // COLLECTIVES[self.collective].parts(len(self.ranks)))

    @property
    def steps(self) -> list[list[Step]]:
        """The steps of each member."""
        n = len(self.ranks)
        return [COLLECTIVES[self.collective].steps(position, n) for position in range(n)]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Who sends to whom: a queue pair each."""
        found = {
            (self.ranks[position], self.ranks[target])
            for position, steps in enumerate(self.steps)
            for step in steps
            for target in step.sends
        }
        return sorted(found)


@dataclass(frozen=True)
class Plan:
    """The flows and ranks of a run of some communicators."""

    communicators: tuple[Communicator, ...]
    flows: list[Flow]
    ranks: list[Rank]


def plan_collective(
    ends: Mapping[str, Endpoint],
    communicators: Sequence[Communicator],
    *,
    iterations: int | None = None,
    jitter: float = 0.0,
    stragglers: Mapping[str, float] | None = None,
    stalls: Mapping[str, Stall] | None = None,
    seed: int = 1,
    **settings: Any,
) -> Plan:
    """Plan the ranks of a job.

    In an iteration a rank does the collectives of its communicators one after another, in the order that they are given
    in; the next iteration begins when all have come to their end and all that the rank has sent is acknowledged.

    Args:
        ends: where each rank is, by its name.
        communicators: what ranks do together; a queue pair is of one communicator.
        iterations: of each rank, None for until the end of the run.
        jitter: a rank computes longer or shorter by up to this share, drawn evenly for each rank and iteration.
        stragglers: ranks that compute longer than others, by this share.
        stalls: ranks that stand still now and then.
        seed: draws QPNs, first PSNs and jitter; runs at the same time need seeds of their own.
        settings: further fields of `Flow`, the same for all.

    Raises:
        ConfigError: a communicator names no rank of `ends` or two of one host, or a setting is wrong.
    """
    stragglers, stalls = stragglers or {}, stalls or {}
    _check(ends, communicators, jitter, stragglers.keys() | stalls.keys())
    rng = random.Random(seed)
    flows = _flows(ends, communicators, rng, settings)
    ids = _flow_ids(communicators)
    names = [name for name in ends if any(name in communicator.ranks for communicator in communicators)]
    ranks = [
        Rank(
            id=number,
            name=name,
            host=ends[name].host,
            steps=tuple(_steps(name, communicators, ids, 1 + stragglers.get(name, 0.0), jitter)),
            iterations=iterations,
            seed=rng.getrandbits(_SEED_BITS),
            stall=stalls.get(name),
        )
        for number, name in enumerate(names)
    ]
    return Plan(tuple(communicators), flows, ranks)


def rank_ends(topology: Topology, *, ipv6: bool = False) -> dict[str, Endpoint]:
    """A rank for each NIC of a lab, named HOST/NIC."""
    return {
        f"{host}/{nic.name}": Endpoint(host, nic.ipv6 if ipv6 else nic.ipv4)
        for host, nics in topology.nics.items()
        for nic in nics
    }


def job_communicators(
    topology: Topology, collective: str, *, buffer_bytes: int, compute_ns: int, tensor: int = 1
) -> list[Communicator]:
    """The communicators of a job on all NICs of a lab.

    NICs of the same number do the collective: data parallel. With `tensor` parallelism every so many neighbouring hosts
    are a group that does a ring first, and ranks of the same place in their groups then do the collective; half of the
    computing goes before either.

    Raises:
        ConfigError: the hosts cannot be divided so.
    """
    hosts = topology.hosts
    if len(hosts) % tensor or len(hosts) // tensor < 2:
        raise ConfigError(
            f"{len(hosts)} hosts cannot be divided into two or more groups of {tensor}",
            "Give --tensor a divisor of the number of hosts that leaves two groups or more.",
        )
    made: list[Communicator] = []
    for nic in topology.nics[hosts[0]]:
        names = tuple(f"{host}/{nic.name}" for host in hosts)
        groups = [names[first : first + tensor] for first in range(0, len(names), tensor)]
        places = list(zip(*groups, strict=True))
        if tensor > 1:
            made += _named(f"tensor-{nic.name}", "ring", groups, buffer_bytes, compute_ns // 2)
        share = 2 if tensor > 1 else 1
        made += _named(f"data-{nic.name}", collective, places, buffer_bytes, compute_ns // share)
    return made


def _named(
    name: str, collective: str, groups: Sequence[tuple[str, ...]], buffer_bytes: int, compute_ns: int
) -> list[Communicator]:
    return [
        Communicator(
            name=f"{name}-{number}" if len(groups) > 1 else name,
            collective=collective,
            ranks=ranks,
            buffer_bytes=buffer_bytes,
            compute_ns=compute_ns,
        )
        for number, ranks in enumerate(groups, 1)
    ]


def _check(
    ends: Mapping[str, Endpoint],
    communicators: Sequence[Communicator],
    jitter: float,
    named: AbstractSet[str],
) -> None:
    members = {name for communicator in communicators for name in communicator.ranks}
    for name in sorted(members - ends.keys() | named - members):
        raise ConfigError(f"there is no rank {name!r}", f"Ranks are {', '.join(ends)}.")
    for communicator in communicators:
        hosts = Counter(ends[name].host for name in communicator.ranks)
        if max(hosts.values()) > 1:
            raise ConfigError(
                f"the communicator {communicator.name} has two ranks of one host, whose packets would not leave it",
                "Give each of its ranks a host of its own.",
            )
    if len({communicator.name for communicator in communicators}) < len(communicators):
        raise ConfigError("two communicators have one name", "Give each a name of its own.")
    if not 0 <= jitter < 1:
        raise ConfigError(f"a jitter of {jitter}", "Give a share from 0 to less than 1.")


def _flow_ids(communicators: Sequence[Communicator]) -> dict[tuple[str, str, str], int]:
    """The flow of each communicator's name, source and target."""
    keys = [(c.name, *pair) for c in communicators for pair in c.pairs]
    return {key: number for number, key in enumerate(keys)}


def _flows(
    ends: Mapping[str, Endpoint],
    communicators: Sequence[Communicator],
    rng: random.Random,
    settings: dict[str, Any],
) -> list[Flow]:
    pairs = [(ends[source], ends[target]) for c in communicators for source, target in c.pairs]
    lengths = [c.message_bytes for c in communicators for _ in c.pairs]
    settings.setdefault("window", shared_window(pairs))
    flows = drawn_flows(pairs, rng, **settings)
    return [
        replace(flow, message_bytes=message_bytes) for flow, message_bytes in zip(flows, lengths, strict=True)
    ]


def _steps(
    name: str,
    communicators: Sequence[Communicator],
    ids: Mapping[tuple[str, str, str], int],
    slowness: float,
    jitter: float,
) -> Iterator[RankStep]:
    for communicator in communicators:
        if name not in communicator.ranks:
            continue
        for step in communicator.steps[communicator.ranks.index(name)]:
            compute_ns = step.compute_share * communicator.compute_ns * slowness
            sources, targets = (
                [communicator.ranks[position] for position in side] for side in (step.receives, step.sends)
            )
            yield RankStep(
                communicator=communicator.name,
                compute_ns=round(compute_ns),
                jitter_ns=round(compute_ns * jitter),
                inputs=tuple(ids[communicator.name, source, name] for source in sources),
                outputs=tuple(ids[communicator.name, name, target] for target in targets),
            )
