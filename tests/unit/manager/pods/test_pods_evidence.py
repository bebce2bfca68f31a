"""What pods' sums decide together: the same as one manager that had all probes."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.faults.causes import Class, find_causes
from manager.faults.losses import SPANS, RowSums, best_explanation, overflowed
from manager.faults.probe_history import ProbeHistory
from manager.links.matrix import Nics, PathMatrix, build_matrix
from manager.paths.windows import RowName
from manager.pods.evidence import JointSums, Snapshot, Teller, joined

Rng = np.random.Generator


class Fleet:
    """Hosts below leaves of groups with spines and cores; each row is probed by a NIC of some pod, drawn or by group."""

    def __init__(self, rng: Rng, pods: int, *, by_group: bool) -> None:
        groups, leaves = int(rng.integers(2, 5)), int(rng.integers(1, 3))
        spines, cores, hosts = (int(n) for n in rng.integers((1, 1, 1), (4, 4, 4)))
        self.names: list[RowName] = []
        self.group: list[int] = []
        owner: dict[str, str] = {}
        addresses: dict[str, list[str]] = {}
        paths: dict[PathName, tuple[int, ...]] = {}
        numbers: dict[DirectedLink, int] = {}
        nics = [
            (f"h{g}-{leaf}-{h // 2}/nic{h % 2}", f"l{g}-{leaf}", g)
            for g in range(groups)
            for leaf in range(leaves)
            for h in range(hosts)
        ]
        for i, (nic, _, _) in enumerate(nics):
            owner[f"10.0.{i // 250}.{i % 250 + 1}"] = nic
            addresses[nic] = [f"10.0.{i // 250}.{i % 250 + 1}"]

        def path(a: int, b: int) -> tuple[int, ...]:
            (src, la, ga), (dst, lb, gb) = nics[a], nics[b]
            up, down = (f"s{g}-{rng.integers(spines)}" for g in (ga, gb))
            core = f"c{rng.integers(cores)}"
            nodes = [src, la, lb, dst] if la == lb else [src, la, up, lb, dst]
            if ga != gb:
                nodes = [src, la, up, core, down, lb, dst]
            if la == lb:
                nodes = [src, la, dst]
            pairs = (DirectedLink(x, y) for x, y in pairwise(nodes))
            return tuple(numbers.setdefault(link, len(numbers)) for link in pairs)

        for _ in range(int(rng.integers(20, 250))):
            a, b = rng.choice(len(nics), 2, replace=False).tolist()
            sport, reply = (int(port) for port in rng.integers(50_000, 60_000, 2))
            there = PathName(nics[a][0], addresses[nics[b][0]][0], sport)
            back = PathName(nics[b][0], addresses[nics[a][0]][0], reply)
            paths.setdefault(there, path(a, b))
            paths.setdefault(back, path(b, a))
            self.names.append(RowName(there.src, there.dst_addr, sport, reply))
            self.group.append(nics[a][2])
        self.routes, self.nics = Routes(1, tuple(numbers), paths), Nics(owner, addresses)
        self.matrix = build_matrix(self.names, self.routes, self.nics)
        drawn = rng.integers(pods, size=len(self.names))
        self.pod = np.array(self.group) % pods if by_group else drawn

    def history(self, rng: Rng) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probes of 40 windows with up to two lossy links, and some losses everywhere; shape (windows, rows) each."""
        windows, rows = SPANS[-1], len(self.names)
        sent = rng.integers(0, 12, (windows, rows)).astype(np.float64)
        share = np.full(rows, rng.choice([0.0, 0.0, 0.002, 0.02]))
        for link in rng.choice(len(self.routes.links), int(rng.integers(0, 3))).tolist():
            on = np.zeros(len(self.routes.links))
            on[link] = 1.0
            share = np.maximum(share, (self.matrix.round_trip @ on > 0) * rng.choice([0.02, 0.2, 1.0]))
        began = int(rng.integers(windows - 2))
        lost = rng.binomial(sent.astype(int), share).astype(np.float64)
        lost[:began] = 0.0
        return sent * self.matrix.known, lost * self.matrix.known

    def of(self, pod: int) -> tuple[NDArray[np.bool_], PathMatrix]:
        """The rows of a pod, and what it knows itself: the links of its own rows only, in an order of its own."""
        mine = self.pod == pod
        names = [name for name, is_mine in zip(self.names, mine, strict=True) if is_mine]
        ends = {(name.src, self.nics.owner[name.dst_addr]) for name in names}
        both = ends | {(b, a) for a, b in ends}
        paths = {
            path: links
            for path, links in self.routes.paths.items()
            if (path.src, self.nics.owner[path.dst_addr]) in both
        }
        used = sorted({link for links in paths.values() for link in links}, reverse=True)
        number = {link: i for i, link in enumerate(used)}
        own = {path: tuple(number[link] for link in links) for path, links in paths.items()}
        links = tuple(self.routes.links[link] for link in used)
        return mine, build_matrix(names, Routes(1, links, own), self.nics)


def filled(
    sent: NDArray[np.float64], lost: NDArray[np.float64], queued_ns: NDArray[np.float64] | None = None
) -> ProbeHistory:
    history = ProbeHistory(sent.shape[1], SPANS)
    queued_ns = np.full(sent.shape, np.nan) if queued_ns is None else queued_ns
    for each in zip(sent, lost, queued_ns.astype(np.float32), strict=True):
        history.add(*each)
    return history


def told(named: Class) -> list[tuple[str, str, frozenset[DirectedLink]]]:
    """What a class names, whatever the order in which its links are known."""
    return [(each.kind, each.name, frozenset(each.links)) for each in (named.subject, *named.also)]


@pytest.mark.parametrize("overflows", [False, True])
def test_a_queue_that_overflows_is_told_from_a_faulty_link_by_all_pods_lost_probes(overflows: bool) -> None:
    """A faulty link loses probes at any time, a queue when it is at its longest."""
    rng = np.random.default_rng(3)
    fleet = Fleet(rng, 2, by_group=False)
    shape = SPANS[-1], len(fleet.names)
    queued_ns = rng.exponential(1e6, shape) + 1e5
    longest = queued_ns >= np.quantile(queued_ns, 0.9, axis=0)
    lost = np.where(longest, 1.0, 0.0) if overflows else (rng.random(shape) < 0.1).astype(float)
    sent = np.full(shape, 4.0)
    tables, parts = [], []
    for pod in range(2):
        mine, matrix = fleet.of(pod)
        teller = Teller(matrix)
        history = filled(sent[:, mine], lost[:, mine], queued_ns[:, mine])
        tables.append(teller.table)
        parts.append(teller.sums(Snapshot.of(history, ~matrix.known)))
    sums = JointSums(joined(tables), parts)
    lost_by_class = sums.lost_by_class(-1)
    most = int(np.argmax(lost_by_class))
    assert len(sums.ranks(most)) == lost_by_class[most]
    assert overflowed(sums.ranks(most), 0.0) is overflows


@pytest.mark.parametrize("seed", range(60))
def test_pods_decide_together_as_one_manager_would(seed: int) -> None:
    rng = np.random.default_rng((15, seed))
    pods = int(rng.integers(1, 17))
    fleet = Fleet(rng, pods, by_group=seed % 3 == 0)
    sent, lost = fleet.history(rng)
    explained = rng.random(len(fleet.names)) < rng.choice([0.0, 0.2])
    causes = find_causes(fleet.matrix)
    alone = best_explanation(RowSums(filled(sent, lost), explained, causes), causes.prior)

    tables, parts = [], []
    for pod in range(pods):
        mine, matrix = fleet.of(pod)
        teller = Teller(matrix)
        tables.append(teller.table)
        history = filled(sent[:, mine], lost[:, mine])
        parts.append(teller.sums(Snapshot.of(history, explained[mine])))
    whole = joined(tables)
    together = best_explanation(JointSums(whole, parts), whole.prior)

    assert {each.subject.name for each in whole.classes} == {each.subject.name for each in causes.classes}
    if alone is None or together is None:
        assert alone is together is None
        return
    assert together.gain == alone.gain
    assert together.windows == alone.windows
    assert together.confidence == pytest.approx(alone.confidence, rel=1e-12)
    if alone.confidence > 0.5:
        assert told(whole.classes[together.number]) == told(causes.classes[alone.number])
        assert (together.sent, together.lost, together.of_late) == (alone.sent, alone.lost, alone.of_late)
