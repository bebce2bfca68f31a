"""Which flows are of one job. Pure.

Flows of one process are of one job, and processes that name the same job. Where the processes are not known, flows that meet
at a NIC are of one job if their bursts begin in one rhythm: each at some time of its own within the others' iterations, the
same time in all of them. Iterations vary, and two jobs vary unlike each other.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import Flow, Ints
from manager.jobs.steps import Steps
from manager.jobs.table import FlowTable

STEPS = 3_000
"""Into so many a window is divided."""

BLURS, RARE = (5, 10), 50
"""By so many steps a flow begins earlier or later within iterations, and is still in rhythm: by the more where one of two flows begins
less than so many times, as a share of what is computed is longer then."""

MOST_LAG = 300
"""Steps."""

LEAST_LIKENESS = 0.5
LEAST_BURSTS = 6
"""With fewer, whether a flow is in rhythm cannot be told."""

SURE = 1.0
"""Of a job whose processes are known."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Owner:
    """Who has one end of a flow: the process, and the job that it names; empty for none."""

    host: str
    pid: int
    job: str = ""


Owners = tuple[Owner | None, Owner | None]
"""Of the sending end and of the receiving end; None where it is not known."""

UNKNOWN: Owners = None, None


@dataclass(frozen=True)
class Together:
    """Flows that were found to be in one rhythm, and how much."""

    flows: Collection[Flow]
    likeness: float


@dataclass(frozen=True)
class Group:
    """Flows of one job, by their places, in order.

    Attributes:
        likeness: how much in one rhythm they are in the mean, from 0 to 1; 1 where all processes are known.
        named: the job, as its processes name it; empty where none does.
    """

    flows: tuple[int, ...]
    likeness: float
    named: str


def group(
    table: FlowTable,
    owners: Sequence[Owners],
    until_ns: int,
    window_ns: int,
    before: Iterable[Together] = (),
) -> Steps[list[Group]]:
    """Divide flows into jobs, in the order of their first flows; a step for each NIC.

    Args:
        table: of n flows.
        owners: who has the ends of each, shape (n,).
        until_ns: on the timeline; what begins later does not count.
        window_ns: nor does what begins so much earlier.
        before: what was in one rhythm before, and is taken to be so still where it is not known whose it is.
    """
    flows = table.flows
    union = _Union(len(flows))
    unknown: defaultdict[str, list[int]] = defaultdict(list)
    for i, flow in enumerate(flows):
        for nic, owner in zip(flow[:2], owners[i], strict=True):
            if owner is None:
                unknown[nic].append(i)
            else:
                union.tie(i, owner.job or (owner.host, owner.pid))
                union.tie(i, (owner.host, owner.pid))
    likeness: defaultdict[int, list[float]] = defaultdict(list)
    places = {flow: i for i, flow in enumerate(flows) if owners[i] == UNKNOWN}
    for together in before:
        mine = [places[flow] for flow in together.flows if flow in places]
        for i in mine:
            union.join(mine[0], i)
        if mine:
            likeness[mine[0]].append(together.likeness)
    for met in unknown.values():
        apart = list({union.head(i): i for i in met}.values())
        if len(apart) == 1:
            continue
        rhythms = _Rhythms([table.starts_ns(i) for i in apart], until_ns, window_ns)
        for first, second, found in _in_rhythm(rhythms):
            i, j = apart[first], apart[second]
            union.join(i, j)
            likeness[i].append(found)
        yield
    return [_group(members, likeness, owners) for members in union.parts()]


def _group(members: Iterable[int], likeness: Mapping[int, list[float]], owners: Sequence[Owners]) -> Group:
    flows = tuple(members)
    found = [one for i in flows for one in likeness.get(i, ())]
    names = sorted({owner.job for i in flows for owner in owners[i] if owner is not None and owner.job})
    return Group(flows, float(np.mean(found)) if found else SURE, names[0] if names else "")


def _in_rhythm(rhythms: "_Rhythms") -> list[tuple[int, int, float]]:
    """Pairs of flows that are in one rhythm, and how much: each with one of those that are alike before it."""
    heads: list[int] = []
    likeness: list[Floats] = []
    found = []
    for i in range(rhythms.count):
        scores = [float(of_head[i]) for of_head in likeness]
        best = int(np.argmax(scores)) if scores else -1
        if scores and scores[best] >= LEAST_LIKENESS:
            found.append((i, heads[best], scores[best]))
        else:
            heads.append(i)
            likeness.append(rhythms.likeness(i))
    return found


class _Rhythms:
    """The beginnings of the bursts of flows that meet at a NIC, to be compared.

    Attributes:
        count: how many flows there are.
    """

    def __init__(self, starts_ns: Sequence[Ints], until_ns: int, window_ns: int) -> None:
        self.count = len(starts_ns)
        self._begun = np.zeros((self.count, STEPS), np.bool_)
        self._counts = np.zeros(self.count, np.intp)
        for i, each_ns in enumerate(starts_ns):
            place = (each_ns - (until_ns - window_ns)) // (window_ns // STEPS)
            place = place[(place >= 0) & (place < STEPS)]
            self._counts[i] = len(place)
            self._begun[i, place] = True
        self._length = 1 << (STEPS + MOST_LAG + 2 * max(BLURS)).bit_length()
        self._blurred: dict[int, NDArray[np.complex128]] = {}

    def likeness(self, i: int) -> Floats:
        """The correlation of one flow's beginnings with those of each flow behind it at the lag at which it is highest, shape (flows,)."""
        found = np.zeros(self.count)
        fewer = np.minimum(self._counts, self._counts[i])
        fewer[: i + 1] = 0
        for steps, is_so in ((BLURS[0], fewer >= RARE), (BLURS[1], (fewer >= LEAST_BURSTS) & (fewer < RARE))):
            if is_so.any():
                spectra = self._spectra(steps)
                products = np.fft.irfft(spectra[is_so] * spectra[i].conj(), self._length)
                found[is_so] = np.maximum(
                    products[:, :MOST_LAG].max(axis=1), products[:, -MOST_LAG:].max(axis=1)
                )
        return found

    def _spectra(self, steps: int) -> NDArray[np.complex128]:
        """Of what begins, blurred by so many steps, of norm 1 and mean 0; shape (flows, frequencies)."""
        if steps not in self._blurred:
            flow, place = np.nonzero(self._begun)
            blurred = np.zeros((self.count, STEPS + 2 * steps))
            for later, weight in enumerate(np.hanning(2 * steps + 1)):
                blurred[flow, place + later] += weight
            blurred = blurred[:, :STEPS]
            blurred -= blurred.mean(axis=1, keepdims=True)
            norm = np.linalg.norm(blurred, axis=1, keepdims=True)
            self._blurred[steps] = np.fft.rfft(blurred / np.where(norm > 0, norm, 1.0), self._length)
        return self._blurred[steps]


class _Union:
    """Flows, of which some are of one job."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))
        self._tied: dict[Hashable, int] = {}

    def tie(self, i: int, to: Hashable) -> None:
        """All that is tied to one thing is of one job."""
        self.join(i, self._tied.setdefault(to, i))

    def join(self, i: int, j: int) -> None:
        a, b = self.head(i), self.head(j)
        self._parent[max(a, b)] = min(a, b)

    def parts(self) -> list[list[int]]:
        """Those of each job, in order."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for i in range(len(self._parent)):
            found[self.head(i)].append(i)
        return list(found.values())

    def head(self, i: int) -> int:
        """The first of its job."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i
