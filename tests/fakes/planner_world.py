"""A fabric in arithmetic whose queue pairs take what they get, watched with delay and noise as the manager would."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from fakes import hello, nic
from msgspec.structs import replace
from numpy.typing import NDArray

from cwdp.shared.bus.messages import PathChange, SteerQp, SteerReport
from cwdp.shared.bus.records import EGRESS, QP_ROW, packed_address
from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.hosts.happening import Moves
from manager.hosts.members import Members
from manager.links.loads import Capacities, LinkLoads, likely_bps, tiers
from manager.planner.demand import max_min_rates
from manager.planner.planner import Planner
from manager.queue_pairs.counters import NicReport, QueuePairStore

TICK_S = 0.25
PORTS = 64
FIRST_PORT = 50_000


@dataclass
class Qp:
    """One queue pair; `most_bps` is what its application sends at most."""

    src: int
    dst: int
    qpn: int
    sport: int
    backup: int | None = None
    most_bps: float = np.inf
    sent_bytes: float = 0.0
    moves: list[float] = field(default_factory=list)
    small: bool = False


class World:
    """Leaves, spines, hosts and a planner; host h is at leaf h // hosts_per_leaf.

    With several pods, leaves and spines are those of each, and every core has a link to every spine. Every pair of hosts
    has `PORTS` ports that were traced; which switches one leads over is drawn, one after the other.
    """

    def __init__(
        self,
        *,
        leaves: int = 2,
        spines: int = 4,
        hosts_per_leaf: int = 4,
        pods: int = 1,
        cores: int = 0,
        nic_bps: float = 100e6,
        spine_bps: float = 100e6,
        slow: float = 1.0,
        seed: int = 0,
        delay_ticks: int = 1,
        noise: float = 0.03,
        settings: PlannerSettings | None = None,
        know_capacity: bool = True,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.leaves, self.spines, self.per_leaf = leaves, spines, hosts_per_leaf
        self.pods, self.cores = pods, cores
        self.hosts = pods * leaves * hosts_per_leaf
        self.now_s = 100.0
        self.noise, self.know_capacity = noise, know_capacity
        self.dead: set[DirectedLink] = set()
        self.silent: set[int] = set()
        self.most_listed = 4096
        self.localised: set[DirectedLink] = set()
        self.qps: list[Qp] = []
        self.overrides: dict[str, list[SteerQp]] = {}
        self.links = self._all_links()
        self.number = {link: i for i, link in enumerate(self.links)}
        self.capacity = np.array(
            [
                nic_bps if "/" in (a + b) else spine_bps * (slow if "s0" in (a, b) else 1.0)
                for a, b in self.links
            ]
        )
        self.routes = Routes(1, tuple(self.links), self._paths())
        self.known = self.routes
        self.capacities = Capacities()
        self.members = Members()
        self.store = QueuePairStore()
        self.events: list[tuple[str, str, str]] = []
        self.told_moves: list[Moves] = []
        self._pending: deque[dict[str, list[SteerQp]]] = deque([{}] * delay_ticks, maxlen=delay_ticks + 1)
        self.settings = settings or PlannerSettings()
        self.planner = self.new_planner()
        for h in range(self.hosts):
            nics = [nic("eth0", ipv4=self.address(h), ipv6=None)]
            self.members.hear(replace(hello(f"h{h}"), nics=nics), self.now_s)
        self.tell_steering()

    def new_planner(self) -> Planner:
        return Planner(self.members, self.store, self.settings, self._note)

    def _note(self, host: str, kind: str, detail: str, *, moves: Moves | None = None) -> None:
        self.events.append((host, kind, detail))
        if moves is not None:
            self.told_moves.append(moves)

    @staticmethod
    def address(host: int) -> str:
        return f"10.0.{host // 250}.{host % 250 + 1}"

    def all_to_all(self, members: list[int], **more: float) -> None:
        for src in members:
            for dst in members:
                if src != dst:
                    self.add(src, dst, **more)

    def add(self, src: int, dst: int, **more: float) -> Qp:
        sport = FIRST_PORT + int(self.rng.integers(PORTS))
        qp = Qp(src, dst, 16 + len(self.qps), sport, **more)  # type: ignore[arg-type]
        self.qps.append(qp)
        return qp

    def path(self, qp: Qp, sport: int | None = None) -> tuple[int, ...]:
        return self.routes.paths[PathName(f"h{qp.src}/eth0", self.address(qp.dst), sport or qp.sport)]

    def in_use(self, qp: Qp) -> tuple[int, ...]:
        """The links that its packets cross: those of the backup while the primary is dead."""
        links = self.path(qp)
        if qp.backup is not None and any(self.links[i] in self.dead for i in links):
            return self.path(qp, qp.backup)
        return links

    def rates(self) -> NDArray[np.float64]:
        hops = np.full((4 if self.pods == 1 else 6, len(self.qps)), len(self.links))
        most = np.array([qp.most_bps for qp in self.qps])
        for i, qp in enumerate(self.qps):
            links = self.in_use(qp)
            hops[: len(links), i] = links
            if any(self.links[link] in self.dead for link in links):
                most[i] = 0.0
        return max_min_rates(hops, np.append(self.capacity, np.inf), most)

    def tick(self) -> NDArray[np.float64]:
        """A quarter of a second: packets flow, agents report, the planner plans, hosts do as they were told before."""
        rates = self.rates()
        for qp, rate in zip(self.qps, rates, strict=True):
            qp.sent_bytes += rate * TICK_S / 8
        self.now_s += TICK_S
        self._report()
        self.planner.plan(
            self.now_s,
            routes=self.known,
            loads=self._loads(rates),
            localised=self.localised,
            overrides=self.overrides,
        )
        self._pending.append({host: list(wanted) for host, wanted in self.planner.planned.items()})
        self._apply(self._pending[0])
        return rates

    def run(self, seconds: float) -> NDArray[np.float64]:
        """Rates of every tick, shape (ticks, queue pairs)."""
        return np.array([self.tick() for _ in range(round(seconds / TICK_S))])

    def cut(self, leaf: int, spine: int) -> None:
        self.cut_link(f"l{leaf}", f"s{spine}")

    def cut_link(self, *ends: str) -> None:
        self.dead = {DirectedLink(*ends), DirectedLink(*ends[::-1])}
        for qp in self.qps:
            if qp.backup is not None and any(self.links[i] in self.dead for i in self.path(qp)):
                self.say_down(qp)

    def say_down(self, qp: Qp) -> None:
        """Its host tells that it has given up the path."""
        change = PathChange(
            time_ns=None,
            bound_ns=None,
            dst_addr=self.address(qp.dst),
            sport=qp.sport,
            lasted_ns=1,
            unanswered=9,
            hold_down_ns=1,
            queue_pairs=1,
        )
        self.planner.hear_path(f"h{qp.src}", "eth0", "path_down", change, self.now_s)

    def crossing(self) -> list[Qp]:
        """Queue pairs between two leaves."""
        return [qp for qp in self.qps if len(self.path(qp)) > 2]

    def moves(self) -> int:
        return sum(len(qp.moves) for qp in self.qps)

    def heal(self) -> None:
        self.dead = set()
        self.localised = set()

    def restart(self) -> None:
        """A new planner, which hears what is steered."""
        self.planner = self.new_planner()
        self._pending.clear()
        self._pending.append(self._steered())
        self.tell_steering()

    def tell_steering(self) -> None:
        steered = self._steered()
        for host in self.members.hosts:
            report = SteerReport(host=host, managed=steered.get(host, []), by_hand=[])
            self.planner.hear_steering(report, self.now_s)

    def _steered(self) -> dict[str, list[SteerQp]]:
        found: dict[str, list[SteerQp]] = {}
        for qp in self.qps:
            if qp.backup is not None:
                found.setdefault(f"h{qp.src}", []).append(
                    SteerQp(
                        nic="eth0",
                        dst_addr=self.address(qp.dst),
                        qpn=qp.qpn,
                        sport=qp.sport,
                        backup_sport=qp.backup,
                    )
                )
        return found

    def _apply(self, told: dict[str, list[SteerQp]]) -> None:
        by_qpn = {qp.qpn: qp for qp in self.qps}
        for wanted in told.values():
            for steer in wanted:
                qp = by_qpn.get(steer.qpn)
                if qp is None:
                    continue
                before = self.in_use(qp)
                qp.sport, qp.backup = steer.sport, steer.backup_sport
                if self.in_use(qp) != before:
                    qp.moves.append(self.now_s)

    def _report(self) -> None:
        for host in set(range(self.hosts)) - self.silent:
            mine = [qp for qp in self.qps if qp.src == host]
            unlisted = max(0, len(mine) - self.most_listed)
            mine = mine[: self.most_listed]
            rows = np.zeros(len(mine), QP_ROW)
            for row, qp in zip(rows, mine, strict=True):
                row["addr"] = np.frombuffer(packed_address(self.address(qp.dst)), np.uint8)
                row["qpn"], row["direction"], row["sport"] = qp.qpn, EGRESS, qp.sport
                row["bytes"] = round(qp.sent_bytes * (1 + self.noise * TICK_S * self.rng.normal() / 10))
                row["packets"] = max(1, row["bytes"] // (64 if qp.small else 4096))
            report = NicReport((f"h{host}", "eth0"), rows, unlisted=unlisted)
            self.store.hear([report], local_ns=round(self.now_s * 1e9), now_s=self.now_s)

    def _loads(self, rates: NDArray[np.float64]) -> LinkLoads:
        load = np.zeros(len(self.links))
        for qp, rate in zip(self.qps, rates, strict=True):
            load[list(self.in_use(qp))] += rate
        full = load >= 0.999 * self.capacity
        if self.know_capacity:
            self.capacities.learn(tuple(self.links), load, stands=full, is_sure=np.ones(len(load), bool))
        capacity = self.capacities.known_bps(tuple(self.links))
        return LinkLoads(
            routes=self.routes,
            queue_ns=np.where(full, 5e6, 0.0),
            queue_p99_ns=np.where(full, 5e6, 0.0),
            load_bps=load,
            is_sure=np.ones(len(load), bool),
            stands=full,
            capacity_bps=capacity,
            likely_capacity_bps=likely_bps(capacity, load, tiers(self.links)),
        )

    def _all_links(self) -> list[DirectedLink]:
        ends = [(f"h{h}/eth0", f"l{h // self.per_leaf}") for h in range(self.hosts)]
        ends += [
            (f"l{leaf}", spine)
            for leaf in range(self.pods * self.leaves)
            for spine in self._spines(leaf // self.leaves)
        ]
        ends += [
            (spine, f"c{core}")
            for pod in range(self.pods)
            for spine in self._spines(pod)
            for core in range(self.cores)
        ]
        return [DirectedLink(*pair) for a, b in ends for pair in ((a, b), (b, a))]

    def _spines(self, pod: int) -> list[str]:
        return [f"s{pod * self.spines + spine}" for spine in range(self.spines)]

    def _paths(self) -> dict[PathName, tuple[int, ...]]:
        paths = {}
        for a in range(self.hosts):
            for b in range(self.hosts):
                if a == b:
                    continue
                leaves = a // self.per_leaf, b // self.per_leaf
                drawn = self.rng.integers(self.spines, size=PORTS).tolist()
                above = [[spine] for spine in drawn]
                if leaves[0] // self.leaves != leaves[1] // self.leaves:
                    above = self.rng.integers(0, [self.spines, self.cores, self.spines], (PORTS, 3)).tolist()
                for k, choice in enumerate(above):
                    way = [f"h{a}/eth0", *self._switches(*leaves, choice), f"h{b}/eth0"]
                    name = PathName(f"h{a}/eth0", self.address(b), FIRST_PORT + k)
                    paths[name] = tuple(self.number[DirectedLink(x, y)] for x, y in pairwise(way))
        return paths

    def _switches(self, a: int, b: int, choice: list[int]) -> list[str]:
        """The way from one leaf to another."""
        here, there = self._spines(a // self.leaves), self._spines(b // self.leaves)
        if a == b:
            return [f"l{a}"]
        if len(choice) == 1:
            return [f"l{a}", here[choice[0]], f"l{b}"]
        return [f"l{a}", here[choice[0]], f"c{choice[1]}", there[choice[2]], f"l{b}"]
