"""What the links of a lab can carry at best: programs over its true topology. No I/O.

A path leads from the source's NIC by its leaf up to a spine or a core, as far as it must, and down to the target's. Flows
may be split over paths, which no queue pair can be, unless said otherwise: no placement of whole queue pairs does better.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_matrix, hstack, identity, vstack

from cwdp.errors import LabError
from tools.lab.topology import Topology

Pair = tuple[str, str]

PLACED_WITHIN_S, PLACED_GAP = 20.0, 0.005


@dataclass(frozen=True)
class _Program:
    """Every path of every flow.

    Attributes:
        flow: whose each path is; shape (paths,).
        uses: whether a directed link is on a path; shape (links, paths).
        capacity_bps: of each directed link; shape (links,).
    """

    flow: NDArray[np.intp]
    uses: csr_matrix
    capacity_bps: NDArray[np.float64]

    @property
    def of_flow(self) -> csr_matrix:
        """Whether a path is a flow's; shape (flows, paths)."""
        paths = len(self.flow)
        return csr_matrix((np.ones(paths), (self.flow, np.arange(paths))))


def link_capacities(
    topology: Topology, slow_bps: Mapping[str, float] | None = None, dead: Collection[str] = ()
) -> dict[str, float]:
    """The rate of every link in each direction (`l1>s2`), in bit/s.

    Args:
        topology: of the lab.
        slow_bps: rates of links that have another one than they were made with, by name.
        dead: names of links that carry nothing.
    """
    rates = {name: float(link.rate_bps) for name, link in topology.links.items()} | dict(slow_bps or {})
    return {
        direction: 0.0 if link.name in dead else rates[link.name]
        for link in topology.links.values()
        for direction in link.directions
    }


def fair_optimum_bps(
    topology: Topology, pairs: Sequence[Pair], demand_bps: float, capacity_bps: Mapping[str, float]
) -> float:
    """The most that every flow can have at the same time: the maximum concurrent flow, at most the demand.

    Shahrokhi and Matula, "The maximum concurrent flow problem", J. ACM 37 (1990).
    """
    program = _program(topology, pairs, capacity_bps)
    flows, paths = len(pairs), len(program.flow)
    too_little = hstack([-program.of_flow, csr_matrix(np.ones((flows, 1)))])
    on_links = hstack([program.uses, csr_matrix((len(program.capacity_bps), 1))])
    rates_bps = _solve(
        gain=np.concatenate((np.zeros(paths), [1.0])),
        uses=vstack([too_little, on_links]),
        limits_bps=np.concatenate((np.zeros(flows), program.capacity_bps)),
        most_bps=demand_bps,
    )
    return float(rates_bps[-1])


def total_optimum_bps(
    topology: Topology, pairs: Sequence[Pair], demand_bps: float, capacity_bps: Mapping[str, float]
) -> float:
    """The most that all flows together can have, each at most its demand."""
    program = _program(topology, pairs, capacity_bps)
    rates_bps = _solve(
        gain=np.ones(len(program.flow)),
        uses=vstack([program.of_flow, program.uses]),
        limits_bps=np.concatenate((np.full(len(pairs), demand_bps), program.capacity_bps)),
        most_bps=demand_bps,
    )
    return float(rates_bps.sum())


def placed_optimum_bps(
    topology: Topology, pairs: Sequence[Pair], demand_bps: float, capacity_bps: Mapping[str, float]
) -> float:
    """The same where every flow takes one path: a mixed-integer program, solved to PLACED_GAP.

    Raises:
        LabError: it was not solved within PLACED_WITHIN_S.
    """
    program = _program(topology, pairs, capacity_bps)
    paths = len(program.flow)
    nothing = csr_matrix(program.uses.shape)
    of_flow, every_path = program.of_flow, identity(paths, format="csr")
    found = milp(
        c=np.concatenate((-np.ones(paths), np.zeros(paths))),
        integrality=np.concatenate((np.zeros(paths), np.ones(paths))),
        bounds=Bounds(0.0, 1.0),
        constraints=[
            LinearConstraint(hstack([program.uses, nothing]), ub=program.capacity_bps / demand_bps),
            LinearConstraint(hstack([every_path, -every_path]), ub=0.0),
            LinearConstraint(hstack([csr_matrix(of_flow.shape), of_flow]), ub=1.0),
        ],
        options={"time_limit": PLACED_WITHIN_S, "mip_rel_gap": PLACED_GAP},
    )
    if found.x is None:
        raise LabError(
            f"the best placement could not be computed: {found.message}", "report this as a defect"
        )
    return float(-found.fun * demand_bps)


def fitting_spine_flows(topology: Topology, pairs: Sequence[Pair], slow_share: float = 1.0) -> int:
    """Queue pairs that each link between switches must hold, so that the best placement of whole queue pairs just fits.

    The flows between leaves are the edges of a bipartite multigraph, leaves that send on one side and leaves that
    receive on the other; by König's theorem its edges are as many matchings as its largest degree, and a spine can
    take any of them, as a matching puts one flow on each of its links at most. So it is with pods and all links of
    their spines to cores.

    Args:
        topology: of the lab.
        pairs: source and target of each queue pair.
        slow_share: what the links of the first spine carry of what the others' do.
    """
    spec = topology.spec
    ends = [tuple(topology.leaves.index(topology.nics[host][0].leaf) for host in pair) for pair in pairs]
    wanted = [
        (_largest_degree(ends), spec.spines, 1),
        (
            _largest_degree([(a // spec.leaves, b // spec.leaves) for a, b in ends]),
            spec.spines * spec.cores,
            spec.cores,
        ),
    ]
    fits = 1
    while any(
        (links - slow) * fits + slow * int(fits * slow_share + 1e-9) < flows for flows, links, slow in wanted
    ):
        fits += 1
    return fits


def open_spine_bps(topology: Topology) -> int:
    """A rate of the links between switches that all hosts together cannot fill."""
    return len(topology.hosts) * topology.spec.rate_bps


def _largest_degree(ends: Sequence[tuple[int, ...]]) -> int:
    """The most flows that leave any leaf or pod for others, or come to it from others."""
    out = Counter(a for a, b in ends if a != b)
    into = Counter(b for a, b in ends if a != b)
    return max([0, *out.values(), *into.values()])


def _program(topology: Topology, pairs: Sequence[Pair], capacity_bps: Mapping[str, float]) -> _Program:
    names = {name: number for number, name in enumerate(capacity_bps)}
    flow: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    for number, (source, target) in enumerate(pairs):
        for path in _paths(topology, source, target):
            rows += [names[link] for link in path]
            columns += [len(flow)] * len(path)
            flow.append(number)
    uses = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(flow)))
    return _Program(np.array(flow), uses, np.array(list(capacity_bps.values())))


def _paths(topology: Topology, source: str, target: str) -> list[list[str]]:
    """The directed links of every path between the first NICs of two hosts."""
    a, b = topology.nics[source][0].leaf, topology.nics[target][0].leaf
    ways = ((source, *way, target) for way in topology.ways(a, b))
    return [[f"{node}>{after}" for node, after in pairwise(way)] for way in ways]


def _solve(
    gain: NDArray[np.float64], uses: Any, limits_bps: NDArray[np.float64], most_bps: float
) -> NDArray[np.float64]:
    """Rates in bit/s, each up to `most_bps`, whose gain is the largest while `uses @ rates <= limits_bps`."""
    found = linprog(-gain, A_ub=uses, b_ub=limits_bps / most_bps, bounds=(0.0, 1.0), method="highs")
    if not found.success:
        raise LabError(
            f"the best placement could not be computed: {found.message}", "report this as a defect"
        )
    rates_bps: NDArray[np.float64] = np.asarray(found.x) * most_bps
    return rates_bps
