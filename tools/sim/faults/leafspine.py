"""A fabric of two or three tiers in arithmetic: its routes, and what probes of a mesh meet in it window by window.

Queues are drawn, not simulated packet by packet: a window's mean is the mean wait of an M/D/1 queue at the link's load,
times a log-normal factor that is correlated over some windows; what a pair of probes meets is exponential about that.
Where that is more than the buffer holds, the pair is lost, or one of it. A saturated link is between half full and
full all the time.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import Hello, Nic, WindowReport, nic_id
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_ROW, packed_address
from cwdp.shared.bus.windows import window_report
from manager.fabric.routes import DirectedLink, PathName, Routes
from tools.sim.fleet.window_clocks import WindowClocks

FRAME_NS = 720_000.0
"""The time on the wire of a 9,000-byte frame at 100 Mbit/s, as in the lab."""

BUFFER_NS = 28 * FRAME_NS
NOISE_NS = 5_000.0
CORRELATION = 0.8
SPREAD = 0.3
WINDOWS_PER_S = 10
OVERFLOW_LOSS = 0.7
LOWEST_PORT = 49_152
LARGEST_BOUND_NS = 2**32 - 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large a fabric is, and how it is probed.

    Attributes:
        leaves, spines: of each pod.
        pods, cores: every core has a link to each spine of each pod; one pod needs none.
        hosts_per_leaf: that have their first NIC there.
        rails: NICs of a host, each at the leaf of its rail, as many leaves to a group; 0 for one NIC and no rails.
        degree: NICs that each probes, over `paths` ports.
        pairs_per_s: per NIC.
    """

    leaves: int
    spines: int
    hosts_per_leaf: int
    pods: int = 1
    cores: int = 0
    rails: int = 0
    degree: int = 10
    paths: int = 8
    pairs_per_s: float = 500.0
    load: float = 0.0

    @property
    def nics_per_host(self) -> int:
        """How many NICs each host has."""
        return max(1, self.rails)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.pods * self.leaves // self.nics_per_host * self.hosts_per_leaf

    def leaf(self, nic: int) -> int:
        """The number of a NIC's leaf, from 0 on; a host's NICs have consecutive numbers."""
        host, rail = divmod(nic, self.nics_per_host)
        return host // self.hosts_per_leaf * self.nics_per_host + rail


@dataclass(kw_only=True)
class Trouble:
    """What is wrong with links, by number: the share lost, and which cannot take what comes."""

    loss: dict[int, float] = field(default_factory=dict)
    saturated: set[int] = field(default_factory=set)
    everywhere: float = 0.0


class LeafSpine:
    """A fabric whose probes can be asked for.

    Attributes:
        routes: every path of the mesh.
        hellos: of its hosts, `h0` onwards, with `nic0` and so on.

    Args:
        shape: how large it is.
        rng: source of randomness.
        clocks: of its hosts, from the first window on; None for clocks that are never off.
    """

    def __init__(self, shape: Shape, rng: np.random.Generator, clocks: WindowClocks | None = None) -> None:
        self.shape, self._rng, self._clocks = shape, rng, clocks
        self._first: int | None = None
        per_host = shape.nics_per_host
        nics = shape.hosts * per_host
        self._nics = [nic_id(f"h{i // per_host}", f"nic{i % per_host}") for i in range(nics)]
        self._addresses = [f"10.{i >> 8}.{i & 255}.1" for i in range(nics)]
        self.hellos = [self._hello(i) for i in range(shape.hosts)]
        links: dict[DirectedLink, int] = {}
        paths: dict[PathName, tuple[int, ...]] = {}
        self._rows: list[tuple[int, NDArray[np.void]]] = []
        ways: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        ends: list[tuple[int, int]] = []
        for source in range(nics):
            others = [i for i in range(nics) if i // per_host != source // per_host]
            peers = rng.choice(others, min(shape.degree, len(others)), replace=False)
            rows = np.zeros(len(peers) * shape.paths, WINDOW_ROW)
            for k, peer in enumerate(np.repeat(peers, shape.paths).tolist()):
                sport, reply = (LOWEST_PORT + int(p) for p in rng.integers(0, 16_384, 2))
                rows[k]["dst_addr"] = list(packed_address(self._addresses[peer]))
                rows[k]["sport"], rows[k]["reply_sport"] = sport, reply
                there = self._route(links, paths, source, peer, sport)
                back = self._route(links, paths, peer, source, reply)
                ways.append((there, back))
                ends.append((source, peer))
            self._rows.append((source, rows))
        self.routes = Routes(version=1, links=tuple(links), paths=paths)
        self._there, self._back = (_padded([way[i] for way in ways]) for i in (0, 1))
        self._src, self._dst = np.array(ends).T // per_host
        self._drawn = rng.normal(size=len(links))
        self._rho = np.clip(shape.load * rng.uniform(0.9, 1.1, len(links)), 0.0, 0.97)
        self._due = rng.random(len(ways))

    def cables(self) -> list[tuple[int, int]]:
        """Both directions of every link, by number."""
        number = {link: i for i, link in enumerate(self.routes.links)}
        pairs = {tuple(sorted((i, number.get(DirectedLink(b, a), i)))) for (a, b), i in number.items()}
        return sorted((a, b) for a, b in pairs if a != b)

    def set_aside(self, number: int) -> list[str]:
        """The hosts whose clocks are known to be wrong in a window that was asked for."""
        if self._clocks is None or self._first is None:
            return []
        return [f"h{i}" for i in np.flatnonzero(self._clocks.set_aside[number - self._first])]

    def changed(self, number: int) -> dict[str, float]:
        """The hosts whose clocks are known in a window to have changed of late, and in which window they did."""
        if self._clocks is None or self._first is None:
            return {}
        last = len(self._clocks.changed) - 1
        since = self._clocks.changed[min(number - self._first, last)]
        return {f"h{i}": self._first + float(since[i]) for i in np.flatnonzero(np.isfinite(since))}

    def window(self, number: int, trouble: Trouble) -> list[WindowReport]:
        """What the agents say of a window."""
        self._first = number if self._first is None else self._first
        mean_ns = self._queues()
        passes = np.ones(len(mean_ns))
        for link, share in trouble.loss.items():
            passes[link] *= 1.0 - share
        sent = self._sent()
        delivered = np.full(len(sent), 1.0 - trouble.everywhere)
        delays = []
        for way in (self._there, self._back):
            queued_ns, overflows = self._meet(way, mean_ns, trouble)
            delivered *= np.append(passes, 1.0)[way].prod(axis=1) * np.where(
                overflows, 1 - OVERFLOW_LOSS, 1.0
            )
            delays.append(queued_ns)
        lost = self._rng.binomial(sent, 1.0 - delivered)
        off_ns, bound_ns = self._apart(number - self._first)
        delays_ns = [
            self._delays(queued_ns, sent - lost) + longer_ns
            for queued_ns, longer_ns in zip(delays, (off_ns, -off_ns), strict=True)
        ]
        return self._reports(number, sent, lost, np.stack(delays_ns), bound_ns)

    def _apart(self, window: int) -> tuple[Floats, Floats]:
        """By how much each row's responder is ahead of its initiator, and the bounds of both; NaN where one has no clock."""
        if self._clocks is None:
            nothing = np.zeros(len(self._src))
            return nothing, nothing
        error_ns, bound_ns = self._clocks.error_ns[window], self._clocks.bound_ns[window]
        return error_ns[self._dst] - error_ns[self._src], bound_ns[self._dst] + bound_ns[self._src]

    def _sent(self) -> NDArray[np.int64]:
        """Probes of each row: pairs in turn, so that a row has one every so many windows."""
        rows_of_nic = np.repeat([len(rows) for _, rows in self._rows], [len(rows) for _, rows in self._rows])
        self._due += self.shape.pairs_per_s / rows_of_nic / WINDOWS_PER_S
        whole = np.floor(self._due)
        self._due -= whole
        return 2 * whole.astype(np.int64)

    def _queues(self) -> Floats:
        """Each link's mean in this window."""
        fresh = self._rng.normal(size=len(self._drawn))
        self._drawn = CORRELATION * self._drawn + np.sqrt(1 - CORRELATION**2) * fresh
        mean_ns = self._rho / (2.0 * (1.0 - self._rho)) * FRAME_NS
        return np.asarray(mean_ns * np.exp(SPREAD * self._drawn))

    def _meet(
        self, way: NDArray[np.intp], mean_ns: Floats, trouble: Trouble
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """What the probes of each row are queued for one way, and whether a buffer was full; shape (rows,)."""
        each_ns = np.append(mean_ns, 0.0)[way] * self._rng.exponential(size=way.shape)
        full = np.isin(way, list(trouble.saturated))
        each_ns[full] = BUFFER_NS * self._rng.uniform(0.5, 1.04, np.count_nonzero(full))
        overflows = each_ns > BUFFER_NS
        return np.asarray(np.minimum(each_ns, BUFFER_NS).sum(axis=1)), np.asarray(overflows.any(axis=1))

    def _delays(self, queued_ns: Floats, answered: NDArray[np.int64]) -> Floats:
        """Least and mean over a row's probes, which leave together; shape (2, rows)."""
        each = 10_000.0 + queued_ns + self._rng.exponential(NOISE_NS, size=(2, len(queued_ns)))
        least = np.where(answered > 1, each.min(axis=0), each[0])
        mean = np.where(answered > 1, each.mean(axis=0), each[0])
        return np.stack((least, mean))

    def _reports(
        self,
        number: int,
        sent: NDArray[np.int64],
        lost: NDArray[np.int64],
        delays_ns: Floats,
        bound_ns: Floats,
    ) -> list[WindowReport]:
        """From the delays of each way, least and mean, shape (2, 2, rows)."""
        reports, start = [], 0
        for source, rows in self._rows:
            mine = slice(start, start + len(rows))
            start += len(rows)
            rows["window"], rows["sent"], rows["lost"] = number, sent[mine], lost[mine]
            timed = ((sent > lost) & ~np.isnan(bound_ns))[mine]
            rows["bound_ns"] = np.where(timed, np.minimum(bound_ns[mine], LARGEST_BOUND_NS), 0)
            for way, delays in zip(("fwd", "rev"), delays_ns, strict=True):
                for name, delay in zip(("min", "mean"), delays, strict=True):
                    rows[f"{way}_{name}_ns"] = np.where(timed, delay[mine], NO_DELAY_NS)
            said = rows[rows["sent"] > 0]
            host, _, nic = self._nics[source].partition("/")
            reports.append(window_report(host, [nic], said))
        return reports

    def _route(
        self,
        links: dict[DirectedLink, int],
        paths: dict[PathName, tuple[int, ...]],
        source: int,
        target: int,
        sport: int,
    ) -> tuple[int, ...]:
        name = PathName(self._nics[source], self._addresses[target], sport)
        if name not in paths:
            middle = self._switches(self.shape.leaf(source), self.shape.leaf(target))
            nodes = [self._nics[source], *middle, self._nics[target]]
            hops = [DirectedLink(*hop) for hop in pairwise(nodes)]
            paths[name] = tuple(links.setdefault(hop, len(links)) for hop in hops)
        return paths[name]

    def _switches(self, a: int, b: int) -> list[str]:
        """The way from one leaf to another that ECMP takes: each switch that has a choice draws."""
        shape = self.shape
        up = int(self._rng.integers(shape.spines))
        pods = a // shape.leaves, b // shape.leaves
        if a == b:
            return [f"l{a}"]
        if pods[0] == pods[1]:
            return [f"l{a}", self._spine(pods[0], up), f"l{b}"]
        core, down = int(self._rng.integers(shape.cores)), int(self._rng.integers(shape.spines))
        return [f"l{a}", self._spine(pods[0], up), f"c{core}", self._spine(pods[1], down), f"l{b}"]

    def _spine(self, pod: int, number: int) -> str:
        return f"p{pod}s{number}" if self.shape.pods > 1 else f"s{number}"

    def _hello(self, host: int) -> Hello:
        first = host * self.shape.nics_per_host
        nics = [
            Nic(ifname=f"nic{k}", mac="", ipv4=address, ipv6=None, carrier=True, mode="native")
            for k, address in enumerate(self._addresses[first:][: self.shape.nics_per_host])
        ]
        return Hello(
            host=f"h{host}",
            boot_id="",
            version="",
            dataplane_tag="",
            nics=nics,
            desired_version=1,
            key_ids=[],
        )


def _padded(paths: list[tuple[int, ...]]) -> NDArray[np.intp]:
    """Links by row, -1 behind the last; shape (rows, longest)."""
    longest = max(len(path) for path in paths)
    return np.array([path + (-1,) * (longest - len(path)) for path in paths], np.intp)
