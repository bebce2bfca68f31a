"""The queue pairs that send: which links they cross, and which jobs they make; now, or as history kept them. No I/O."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import NOWHERE, PathName, Routes
from manager.moment.jobs import Jobs, find_jobs
from manager.placement.flows import Flows, QpName
from manager.queue_pairs.verbs import Name as VerbsName
from manager.view.json_values import Json
from manager.view.link_table import Link


@dataclass(frozen=True, eq=False)
class Talkers:
    """Queue pairs that send; arrays of shape (n,).

    Attributes:
        names: of each.
        dst: the NIC at the far end, or its address where nobody is known to have it.
        sport: the source port of its packets.
        rate_bps: what it sends, NaN for unknown.
        links: the links that `crossed` numbers.
        crossed: numbers of the links that it crosses in the order of travel, -1 behind the last, shape (n, hops); of
            a queue pair whose path is not known all -1.
        kept: its row in history, where it is of the past.
        told_jobs: the job of each as its program tells, "" where it does not; none where no program tells.
    """

    names: Sequence[QpName] = ()
    dst: Sequence[str] = ()
    sport: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rate_bps: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    links: Sequence[Link] = ()
    crossed: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 1), np.int32))
    kept: Sequence[Json] = ()
    told_jobs: Sequence[str] = ()

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs that they make."""
        dst = [host_of(dst) or dst for dst in self.dst]
        return find_jobs([name.host for name in self.names], dst, self.told_jobs)

    @cached_property
    def number(self) -> dict[QpName, int]:
        """Where each queue pair is."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def fastest(self) -> NDArray[np.intp]:
        """Places in the order of their rates."""
        return np.argsort(-np.nan_to_num(self.rate_bps), kind="stable")

    def path(self, i: int) -> list[Link]:
        """The links that a queue pair crosses; none where that is not known."""
        return [self.links[number] for number in self.crossed[i].tolist() if number != NOWHERE]

    def crossing(self, links: Collection[Link]) -> NDArray[np.intp]:
        """Places of those that cross any of some links, the fastest first."""
        wanted = set(links)
        numbers = [i for i, link in enumerate(self.links) if link in wanted]
        return self._fastest_of(np.asarray(np.isin(self.crossed, numbers).any(axis=1), bool))

    def at(self, nics: Collection[str]) -> NDArray[np.intp]:
        """Places of those that begin or end at some NICs or hosts, the fastest first."""
        wanted = set(nics)
        ends = [
            not wanted.isdisjoint((name.src, name.host, dst, host_of(dst)))
            for name, dst in zip(self.names, self.dst, strict=True)
        ]
        return self._fastest_of(np.array(ends, bool))

    def jobs_of(self, places: Iterable[int]) -> list[str]:
        """The names of the jobs of some queue pairs, each once."""
        of_flow = self.jobs.of_flow
        return list(dict.fromkeys(of_flow[i] for i in places))

    def _fastest_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        return self.fastest[chosen[self.fastest]]


def of_now(flows: Flows, routes: Routes, jobs: Mapping[VerbsName, str] | None = None) -> Talkers:
    """Those that send now, by the paths that are known now; `jobs` are those that programs tell of."""
    crossed = _crossed(flows.names, flows.sport, routes)
    told = [jobs.get(name, "") for name in flows.names] if jobs else ()
    links = routes.links
    return Talkers(flows.names, flows.dst, flows.sport, flows.rate_bps, links, crossed, told_jobs=told)


def of_then(rows: Sequence[Json]) -> Talkers:
    """Those that history kept about a time, oldest row first, by the paths that they had then; the newest row of each."""
    kept = {QpName(row["host"], row["nic"], row["dst_addr"], row["qpn"]): row for row in rows}
    rows = list(kept.values())
    ways = [list(pairwise(row.get("path") or ())) for row in rows]
    number: dict[Link, int] = {}
    crossed = np.full((len(rows), max(map(len, ways), default=0) or 1), NOWHERE, np.int32)
    for i, way in enumerate(ways):
        crossed[i, : len(way)] = [number.setdefault(link, len(number)) for link in way]
    sport = np.array([row["sport"] for row in rows], np.int64)
    rate_bps = np.array([row["bps"] for row in rows], np.float64)
    dst = [row["peer"] or row["dst_addr"] for row in rows]
    return Talkers(list(kept), dst, sport, rate_bps, tuple(number), crossed, rows)


def _crossed(names: Sequence[QpName], sport: NDArray[np.int64], routes: Routes) -> NDArray[np.int32]:
    ports = sport.tolist()
    return routes.crossed(
        [PathName(name.src, name.dst_addr, port) for name, port in zip(names, ports, strict=True)]
    )
