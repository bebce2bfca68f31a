"""Links that are down, that come and go, that carry less than they could. No I/O."""

from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.subnet import NO_PEER, Subnet
from manager.faults.finding import Subject
from manager.ib.faults.holding import Key, Seen
from manager.ib.faults.ports import LONGEST_S, End, Ports, grown
from manager.ib.faults.words import rate

ACTIVE = 4
WINDOW_S, MOST_DOWNS = 600.0, 3
"""A host that boots takes its link down two or three times; what does so more often in ten minutes is flapping."""

FLAPPING_S = 10.0
"""What comes and goes is called down as well once it has stayed away for so long."""

SETTLE_S = 5.0
"""After a link went down: while it is trained it counts symbol errors, and what waits for it is sent at once."""

REMOVED_S = 86_400.0
"""What has been gone for a day was taken away."""

LEAST_SHARE = 0.99
_DOWNED, _RECOVERED = NAMES.index("link_downed"), NAMES.index("link_recoveries")


class Links:
    """The links of a subnet.

    Attributes:
        peer: the far end of each slot's link as it was last seen, or -1, shape (slots,).
        is_up: whether that link is up now, shape (slots,).
        is_settled: whether it has been up for a while, shape (slots,).
    """

    def __init__(self) -> None:
        self.peer: NDArray[np.intp] = np.zeros(0, np.intp)
        self.is_up: NDArray[np.bool_] = np.zeros(0, bool)
        self.is_settled: NDArray[np.bool_] = np.zeros(0, bool)
        self._changed_s: NDArray[np.float64] = np.zeros(0)
        self._best_bps: NDArray[np.float64] = np.zeros(0)
        self._down: dict[tuple[int, int], float] = {}
        self._changes: dict[tuple[int, int], deque[tuple[float, int, int, int]]] = {}

    def step(
        self, ports: Ports, subnet: Subnet, growth: Growth | None, now_s: float, took_s: float
    ) -> tuple[dict[Key, Seen], list[Key]]:
        """Take in a poll; `took_s` is the time since the one before.

        Returns:
            What is seen, and what nothing can be told about.
        """
        count = len(ports.ends)
        self.peer = grown(self.peer, count, -1)
        self.is_up = grown(self.is_up, count, 0)
        self._changed_s = grown(self._changed_s, count, -np.inf)
        self._best_bps = grown(self._best_bps, count, 0.0)
        works = (subnet.ports["state"] == ACTIVE) & subnet.ports["is_linked"]
        peer = self._peers(ports, subnet, works)
        went = self._follow(ports, works, peer, now_s)
        self._count_changes(ports, growth, went, now_s, took_s)
        self.is_settled = self.is_up & (now_s - self._changed_s >= SETTLE_S)
        seen: dict[Key, Seen] = {}
        seen.update(self._gone(ports, subnet, works, now_s))
        seen.update(self._flapping(ports, now_s))
        seen.update(self._degraded(ports, subnet))
        return seen, self._unsure(ports)

    @staticmethod
    def _peers(ports: Ports, subnet: Subnet, works: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The far end of each slot whose link is up now, -1 for none."""
        far = subnet.ports["peer"]
        joined = np.flatnonzero(works & (far != NO_PEER))
        joined = joined[works[far[joined]]]
        peer = np.full(len(ports.ends), -1, np.intp)
        peer[ports.slots[joined]] = ports.slots[far[joined]]
        return peer

    def _follow(
        self, ports: Ports, works: NDArray[np.bool_], peer: NDArray[np.intp], now_s: float
    ) -> list[tuple[int, int]]:
        """See which links are up, which are down, and which lead elsewhere; returns those that have just gone down."""
        is_up = peer >= 0
        moved = np.flatnonzero(is_up & (self.peer >= 0) & (self.peer != peer))
        left = self.peer[moved]
        self.peer[left[~is_up[left]]] = -1
        self._best_bps[moved] = 0.0
        came = is_up & ~self.is_up & (self.peer >= 0)
        self._changed_s[came] = now_s
        self.peer[is_up] = peer[is_up]
        says_down = np.zeros(len(is_up), bool)
        says_down[ports.slots] = ~works
        a = np.flatnonzero((self.peer >= 0) & ~is_up)
        a = a[(a < self.peer[a]) & (self.peer[self.peer[a]] == a)]
        b = self.peer[a]
        is_down = says_down[a] | says_down[b]
        down = set(zip(a[is_down].tolist(), b[is_down].tolist(), strict=True))
        unknown = set(zip(a.tolist(), b.tolist(), strict=True)) - down
        before = self._down
        self._down = {pair: before.get(pair, now_s) for pair in sorted(down)}
        self._down.update({pair: before[pair] for pair in sorted(unknown) if pair in before})
        went = [pair for pair in sorted(down) if pair not in before]
        self._changed_s[[slot for pair in went for slot in pair]] = now_s
        removed = [pair for pair, since_s in self._down.items() if now_s - since_s > REMOVED_S]
        for pair in removed:
            self.peer[list(pair)] = -1
            del self._down[pair]
        self.is_up = is_up
        return went

    def _count_changes(
        self,
        ports: Ports,
        growth: Growth | None,
        went: list[tuple[int, int]],
        now_s: float,
        took_s: float,
    ) -> None:
        """Note what went down as was seen, and as the ports' own counters tell; the larger of both counts."""
        noted: Counter[tuple[tuple[int, int], int]] = Counter()
        for pair in went:
            noted[pair, 1] += 1
        if growth is not None and took_s > 0:
            counts = np.nan_to_num(growth.per_s[:, [_DOWNED, _RECOVERED]] * min(took_s, LONGEST_S))
            for row in np.flatnonzero(counts.max(axis=1, initial=0.0) >= 0.5).tolist():
                slot = int(ports.slots[row])
                far = int(self.peer[slot])
                if far < 0:
                    continue
                if counts[row, 0] >= 0.5:
                    self._changed_s[[slot, far]] = now_s
                pair = (min(slot, far), max(slot, far))
                for what, value in zip((2, 3), counts[row].tolist(), strict=True):
                    noted[pair, what] = max(noted[pair, what], round(value))
        for pair in {pair for pair, _ in noted}:
            one = (now_s, noted[pair, 1], noted[pair, 2], noted[pair, 3])
            self._changes.setdefault(pair, deque(maxlen=int(WINDOW_S))).append(one)

    def _gone(
        self, ports: Ports, subnet: Subnet, works: NDArray[np.bool_], now_s: float
    ) -> Iterator[tuple[Key, Seen]]:
        """Links that are down; of a switch or a host that is gone with all of its links, that alone."""
        told: set[tuple[int, int]] = set()
        for key, subject, pairs in self._whole(ports, self._linked(ports, works)):
            told.update(pairs)
            names = ", ".join(ports.cable(*pair).name for pair in pairs[:4])
            more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
            yield (
                ("dead", key),
                Seen(subject, (f"all of its {len(pairs)} links that can be seen are down: {names}{more}",)),
            )
        for pair, since_s in self._down.items():
            if pair not in told and (now_s - since_s >= FLAPPING_S or not self._is_flapping(pair)):
                yield ("dead", self._key(ports, pair)), self._down_link(ports, subnet, pair)

    def _down_link(self, ports: Ports, subnet: Subnet, pair: tuple[int, int]) -> Seen:
        evidence = []
        for slot in pair:
            row = ports.rows[slot]
            if row < 0:
                evidence.append(f"{ports.name(slot)} does not answer")
            elif subnet.ports["is_linked"][row]:
                evidence.append(
                    f"{ports.name(slot)} has a link, but the subnet manager has not made it active"
                )
            else:
                evidence.append(f"{ports.name(slot)} has no link")
        hosts = [
            Subject("host", host)
            for slot in pair
            if ports.ends[slot].guid not in ports.present and (host := ports.host(ports.ends[slot].guid))
        ]
        return Seen(ports.cable(*pair), tuple(evidence), tuple(hosts))

    def _linked(self, ports: Ports, works: NDArray[np.bool_]) -> set[int]:
        """Nodes that do not answer, but whose links are up as their far ends say."""
        slots = ports.slots[works]
        far = self.peer[slots]
        return {ports.ends[slot].guid for slot in far[(far >= 0) & ~self.is_up[slots]].tolist()}

    def _whole(
        self, ports: Ports, linked: set[int]
    ) -> Iterator[tuple[tuple[str], Subject, list[tuple[int, int]]]]:
        """Switches and hosts that do not answer, with the links by which others see that they are down: two or more."""
        groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for pair in self._down:
            for slot, far in (pair, pair[::-1]):
                guid = ports.ends[slot].guid
                if guid not in ports.present and guid not in linked and ports.rows[far] >= 0:
                    host = ports.host(guid)
                    groups.setdefault(("host", host) if host else ("switch", f"{guid:#018x}"), []).append(
                        pair
                    )
        for (kind, name), pairs in groups.items():
            if len(pairs) < 2 or (kind == "host" and self._is_there(ports, name)):
                continue
            if kind == "host":
                yield (name,), Subject("host", name), pairs
            else:
                yield (name,), Subject("switch", ports.node_name(int(name, 16))), pairs

    @staticmethod
    def _is_there(ports: Ports, host: str) -> bool:
        return any(ports.host(guid) == host for guid in ports.present)

    def _flapping(self, ports: Ports, now_s: float) -> Iterator[tuple[Key, Seen]]:
        for pair, changes in list(self._changes.items()):
            while changes and now_s - changes[0][0] > WINDOW_S:
                changes.popleft()
            if not changes:
                del self._changes[pair]
            elif self._is_flapping(pair):
                _, seen, downed, recovered = (sum(column) for column in zip(*changes, strict=True))
                evidence = f"in {WINDOW_S / 60:.0f} minutes it went down {max(seen, downed):.0f} times and was trained anew {recovered:.0f} times"
                yield ("flapping", self._key(ports, pair)), Seen(ports.cable(*pair), (evidence,))

    def _is_flapping(self, pair: tuple[int, int]) -> bool:
        changes = self._changes.get(pair, ())
        seen, downed, recovered = (sum(one[i] for one in changes) for i in (1, 2, 3))
        return max(seen, downed) + recovered > MOST_DOWNS

    def _degraded(self, ports: Ports, subnet: Subnet) -> Iterator[tuple[Key, Seen]]:
        a = np.flatnonzero(self.is_up)
        a = a[a < self.peer[a]]
        rows = ports.rows[a], ports.rows[self.peer[a]]
        told = [subnet.ports[each] for each in rows]
        now_bps = np.minimum(*(subnet.rates_bps[each] for each in rows))
        could_bps = np.minimum(*(each["widest"].astype(float) for each in told)) * np.minimum(
            *(each["fastest_bps"].astype(float) for each in told)
        )
        self._best_bps[a] = np.maximum(self._best_bps[a], now_bps)
        best_bps = self._best_bps[a]
        most_bps = np.maximum(could_bps, best_bps)
        for i in np.flatnonzero((now_bps > 0) & (now_bps < LEAST_SHARE * most_bps)).tolist():
            pair = (int(a[i]), int(self.peer[a[i]]))
            what = "both ends could" if could_bps[i] >= best_bps[i] else "it carried before"
            evidence = (
                f"it carries {rate(now_bps[i])} ({min(each['width'][i] for each in told)} lanes), "
                f"{what} {rate(most_bps[i])}"
            )
            yield ("degraded", self._key(ports, pair)), Seen(ports.cable(*pair), (evidence,))

    def _unsure(self, ports: Ports) -> list[Key]:
        """Links of which neither end's state is told now are neither well nor slow."""
        unknown = np.flatnonzero((self.peer >= 0) & ~self.is_up).tolist()
        return [
            ("degraded", self._key(ports, (min(slot, far), max(slot, far))))
            for slot in unknown
            if (far := int(self.peer[slot])) >= 0
        ]

    @staticmethod
    def _key(ports: Ports, pair: tuple[int, int]) -> tuple[End, ...]:
        return tuple(ports.ends[slot] for slot in pair)
