"""A Clos in arithmetic: which hops a packet would take, what an agent would say of them, and of windows of probes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Trace, TraceReport, WindowReport, host_of
from cwdp.shared.bus.records import WINDOW_ROW
from cwdp.shared.bus.windows import MEASURED, window_report
from manager.fabric.fabric import Fabric, TrustChange
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.paths.told import ToldPaths
from manager.paths.windows import WindowStore


@dataclass(frozen=True)
class FakeNic:
    host: str
    ifname: str
    leaf: int
    address: str

    @property
    def name(self) -> str:
        return f"{self.host}/{self.ifname}"


@dataclass
class FakeClos:
    """Leaves, spines and hosts; with `pods` above 1, aggregation switches between them (three tiers).

    Attributes:
        aggs: aggregation switches of a pod, each with links to the spines of its plane.
        meshed: every aggregation switch has links to all spines instead, so that each of three switches has a choice.
        dead: links (leaf or pod switch, the one above) that routing goes round.
        silent: switches that never answer.
        answer: whether a probe is answered, by chance.
        moved: leaves (from 0) that NICs are plugged into with the addresses of their places.
        per_port: switches answer by an address of the port that was entered, not by one of their own.
    """

    leaves: int = 2
    spines: int = 4
    hosts_per_leaf: int = 4
    nics: int = 1
    pods: int = 1
    aggs: int = 2
    meshed: bool = False
    version: int = 4
    dead: set[tuple[str, str]] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    answer: Callable[[], bool] = lambda: True
    answers_at_end: bool = True
    moved: dict[str, int] = field(default_factory=dict)
    per_port: bool = False

    def __post_init__(self) -> None:
        self.hosts: dict[str, list[FakeNic]] = {}
        for number in range(self.leaves * self.hosts_per_leaf):
            home, slot = divmod(number, self.hosts_per_leaf)
            host = f"h{number + 1}"
            self.hosts[host] = []
            for i in range(self.nics):
                leaf = (home + i) % self.leaves
                place = slot + 1 + i * self.hosts_per_leaf
                address = f"10.{leaf + 1}.{place // 200}.{place % 200}"
                if self.version == 6:
                    address = f"fd00:{leaf + 1:x}::{place:x}"
                nic = FakeNic(host, f"nic{i}", leaf, address)
                seat = self.moved.get(nic.name, leaf)
                self.hosts[host].append(replace(nic, leaf=seat))

    @property
    def all_nics(self) -> list[FakeNic]:
        return [nic for nics in self.hosts.values() for nic in nics]

    @property
    def addresses(self) -> dict[str, str]:
        return {nic.address: nic.name for nic in self.all_nics}

    def switch(self, kind: str, number: int) -> str:
        tier = {"leaf": 1, "agg": 2, "spine": 3}[kind]
        return f"fd0c:{tier}::{number:x}" if self.version == 6 else f"10.254.{tier}.{number}"

    def way(self, src: FakeNic, dst: FakeNic, sport: int) -> list[str]:
        """The switches that a packet crosses."""
        up, down = self.switch("leaf", src.leaf + 1), self.switch("leaf", dst.leaf + 1)
        if up == down:
            return [up]
        options = [middle for middle in self._middles(src.leaf, dst.leaf) if self._alive([up, *middle, down])]
        digest = blake2b(f"{src.address} {dst.address} {sport}".encode(), digest_size=8).digest()
        return [up, *options[int.from_bytes(digest, "little") % len(options)], down]

    def ways(self, src: FakeNic, dst: FakeNic) -> list[list[str]]:
        """All that packets of a pair may take, but for dead links."""
        up, down = self.switch("leaf", src.leaf + 1), self.switch("leaf", dst.leaf + 1)
        return [[up]] if up == down else [[up, *m, down] for m in self._middles(src.leaf, dst.leaf)]

    def links(self) -> set[DirectedLink]:
        """Every link that some path between different hosts may cross."""
        found = set()
        for src, dst in self.pairs():
            up, down = self.switch("leaf", src.leaf + 1), self.switch("leaf", dst.leaf + 1)
            middles = self._middles(src.leaf, dst.leaf) if up != down else []
            ways = [[up, *m, down] for m in middles if self._alive([up, *m, down])] or [[up]]
            for way in ways:
                nodes = [src.name, *way, dst.name]
                found |= {DirectedLink(a, b) for a, b in pairwise(nodes)}
        return found

    def pairs(self) -> Iterator[tuple[FakeNic, FakeNic]]:
        for src in self.all_nics:
            for dst in self.all_nics:
                if src.host != dst.host:
                    yield src, dst

    def trace(self, src: FakeNic, dst: FakeNic, sport: int) -> Trace:
        way = self.way(src, dst, sport)
        told: list[str | None] = []
        for i, switch in enumerate(way):
            heard = switch not in self.silent and self.answer()
            shown = self._port_address(switch, way[i - 1] if i else src.address) if self.per_port else switch
            told.append(shown if heard else None)
        if not self.answers_at_end:
            while told and told[-1] is None:
                told.pop()
        return Trace(
            nic=src.ifname,
            dst_addr=dst.address,
            sport=sport,
            hops=told,
            reached=self.answers_at_end,
            local_ns=0,
        )

    def report(self, host: str, ports: int) -> TraceReport:
        traces = [
            self.trace(src, dst, 50_000 + port)
            for src, dst in self.pairs()
            if src.host == host
            for port in range(ports)
        ]
        return TraceReport(host=host, traces=traces)

    def tell(
        self, fabric: Fabric, ports: int = 24, now_s: float = 0.0, without: str = ""
    ) -> list[TrustChange]:
        """All hosts trace and report."""
        fabric.know(self.addresses)
        for host, nics in self.hosts.items():
            if host != without:
                fabric.hear(self.report(host, ports), [nic.ifname for nic in nics], now_s)
        return fabric.step(now_s)

    def _middles(self, src_leaf: int, dst_leaf: int) -> list[list[str]]:
        """Every way between two leaves, their own addresses left out."""
        if self.pods == 1:
            return [[self.switch("spine", s + 1)] for s in range(self.spines)]
        per_pod, aggs = self.leaves // self.pods, self.aggs
        up, down = src_leaf // per_pod, dst_leaf // per_pod
        if up == down:
            return [[self.switch("agg", up * aggs + a + 1)] for a in range(aggs)]
        return [
            [
                self.switch("agg", up * aggs + a + 1),
                self.switch("spine", s + 1),
                self.switch("agg", down * aggs + b + 1),
            ]
            for s in range(self.spines)
            for a in range(aggs)
            for b in range(aggs)
            if self.meshed or a == b == s % aggs
        ]

    def _alive(self, way: list[str]) -> bool:
        steps = list(pairwise(way))
        return not any(step in self.dead or step[::-1] in self.dead for step in steps)

    def _port_address(self, switch: str, before: str) -> str:
        digest = blake2b(f"{switch} {before}".encode(), digest_size=3).digest()
        return f"10.200.{digest[0]}.{digest[1]}" if switch.startswith("10.") else switch


def hear_windows(store: WindowStore, nics: Sequence[str], rows: NDArray[np.void], now: int) -> None:
    """Have a store take in WINDOW_ROWs of NICs of one host, by their fabric-wide names, in a message that tells its paths."""
    report = window_report(host_of(nics[0]), [nic.rpartition("/")[2] for nic in nics], rows)
    told = ToldPaths().read(report)
    assert told is not None
    store.hear(*told, now)


def whole_rows(told: ToldPaths, report: WindowReport) -> NDArray[np.void] | None:
    """A report's WINDOW_ROWs; None where its table is not known."""
    read = told.read(report)
    if read is None:
        return None
    table, placed = read
    rows = np.zeros(len(placed), WINDOW_ROW)
    for name in ("nic", "dst_addr", "sport", "reply_sport"):
        rows[name] = table.paths[name][placed["path"]]
    for name in MEASURED:
        rows[name] = placed[name]
    return rows


def one_pair() -> Routes:
    """A pair of NICs below two leaves, with a path over each of two spines."""
    links = [("a/0", "l1"), ("l1", "s1"), ("l1", "s2"), ("s1", "l2"), ("s2", "l2"), ("l2", "b/0")]
    paths = {
        PathName("a/0", "10.0.0.2", 50_000): (0, 1, 3, 5),
        PathName("a/0", "10.0.0.2", 50_001): (0, 2, 4, 5),
    }
    return Routes(version=1, links=tuple(DirectedLink(*link) for link in links), paths=paths)
