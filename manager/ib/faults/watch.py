"""Faults and congestion of one subnet, held together: one finding per cause, one event at its start and one at its end."""

import time
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WAIT, WORD_BYTES, Growth
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import Subnet
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Findings
from manager.faults.watch import FABRIC, Note
from manager.ib.faults.chance import LASTS_POLLS, Strays
from manager.ib.faults.congestion import Tree, trees
from manager.ib.faults.errors import BitErrors
from manager.ib.faults.holding import Holding, Key, Seen
from manager.ib.faults.links import Links
from manager.ib.faults.ports import Ports, grown
from manager.ib.faults.trust import Trust
from manager.ib.faults.words import listed, rate

LEAST_WAIT = 0.1
"""Share of the time in which a port cannot send, from which on it waits."""

SYMBOLS_A_TICK = 8
"""What a tick of PortXmitWait is taken to last: the time of so many bytes on a lane."""

DISCARDS_PER_S = 10.0
"""A port that drops so many packets, as they have waited for too long, waits as well."""

_WAIT, _DISCARDS, _SENT = (NAMES.index(name) for name in (WAIT, "send_discards", "sent_words"))


class SubnetFaults:
    """What is wrong in a subnet.

    Args:
        findings: where it is kept.
        note: keeps events for people.

    Attributes:
        trust: whose counters are believed, and what was refused.
    """

    def __init__(self, findings: Findings, note: Note) -> None:
        self.trust = Trust()
        self._findings, self._note = findings, note
        self._last_s: float | None = None
        self._begin()

    @property
    def dead_links(self) -> frozenset[DirectedLink]:
        """Those that are down, each way by itself; of a switch or a host that is gone none."""
        return frozenset(
            link for (kind, _), one in self._of.items() if kind == "dead" for link in one.subject.links
        )

    def hear(self, subnet: Subnet, names: Names, growth: Growth | None, now_s: float) -> None:
        """Take in a poll.

        Args:
            subnet: as it is now.
            names: of its nodes and ports.
            growth: of its ports' counters since the poll before, by rows as `subnet.ports`; None where it is not known.
            now_s: the manager's monotonic clock.
        """
        if self._ports.follow(subnet, names):
            self.end()
            self._begin()
            self._ports.follow(subnet, names)
        took_s = now_s - self._last_s if self._last_s is not None else 0.0
        self._last_s = now_s
        per_s, seen = self.trust.believed(self._ports, subnet, growth, now_s)
        believed = None if growth is None else Growth(per_s, growth.stuck)
        of_links, unsure = self._links.step(self._ports, subnet, believed, now_s, took_s)
        seen |= of_links
        seen |= self._errors.step(self._ports, self._links, subnet, per_s, took_s)
        seen |= self._congestion(subnet, per_s)
        self._take(seen, [*unsure, *self._unknown(per_s)], now_s)

    def _begin(self) -> None:
        self._ports, self._links, self._errors, self._holding = Ports(), Links(), BitErrors(), Holding()
        self._strays = Strays()
        self._of: dict[Key, Finding] = {}
        self._polls: NDArray[np.int_] = np.zeros((2, 0), np.int_)

    def end(self) -> None:
        """Nobody tells of the subnet any more."""
        for key in list(self._of):
            self._close(key)

    def _congestion(self, subnet: Subnet, per_s: NDArray[np.float64]) -> Mapping[Key, Seen]:
        link_bps = subnet.rates_bps
        known = np.where(link_bps > 0, link_bps, np.nan)
        tick_s = SYMBOLS_A_TICK * 8 / np.where(subnet.ports["lane_bps"] > 0, subnet.ports["lane_bps"], np.nan)
        waits = np.minimum(per_s[:, _WAIT] * tick_s, 1.0)
        drops = np.nan_to_num(per_s[:, _DISCARDS]) >= DISCARDS_PER_S
        waits = np.where(drops, np.fmax(waits, LEAST_WAIT), waits)
        waits[~self._links.is_settled[self._ports.slots]] = np.nan
        load = per_s[:, _SENT] * 8 * WORD_BYTES / known
        slots = self._ports.slots
        self._polls = grown(self._polls, len(self._ports.ends), 0)
        found, self._polls[:, slots] = trees(subnet, waits, load, self._polls[:, slots], LEAST_WAIT)
        is_root, is_known = (np.zeros(len(self._ports.ends), bool) for _ in range(2))
        is_root[slots[[tree.root for tree in found if not tree.is_full]]] = True
        is_known[slots] = ~np.isnan(waits)
        self._strays.step(is_root, is_known)
        return dict(self._told(tree, waits, load, per_s, known) for tree in found)

    def _told(
        self,
        tree: Tree,
        waits: NDArray[np.float64],
        load: NDArray[np.float64],
        per_s: NDArray[np.float64],
        link_bps: NDArray[np.float64],
    ) -> tuple[Key, Seen]:
        ports = self._ports
        slot = int(ports.slots[tree.root])
        far = int(self._links.peer[slot])
        is_slow = tree.to_host and not tree.is_full
        carries = (
            "nobody knows what it carries"
            if np.isnan(load[tree.root])
            else f"it carries {rate(load[tree.root] * link_bps[tree.root])} of {rate(link_bps[tree.root])}"
        )
        if is_slow:
            what = f"{ports.name(far)} takes less than its link could bring"
        elif tree.to_host:
            what = f"the link to {ports.name(far)} is full"
        else:
            what = f"the link between switches is {'full' if tree.is_full else 'held up at its far end'}"
        evidence = [
            f"{what}: {carries}, and {ports.name(slot)} waits {np.nan_to_num(waits[tree.root]):.0%} of the time"
        ]
        if per_s[tree.root, _DISCARDS] > 0:
            evidence.append(
                f"it drops {per_s[tree.root, _DISCARDS]:.0f} packets a second that waited too long"
            )
        if tree.waiting:
            names = [ports.name(int(ports.slots[row])) for row in tree.waiting]
            evidence.append(f"{len(names)} ports wait for it: {listed(names)}")
        is_sure = tree.full_polls >= LASTS_POLLS if tree.is_full else self._strays.is_no_stray(slot)
        seen = Seen(ports.direction(slot, far), tuple(evidence), is_sure=is_sure)
        return (
            ("slow_receiver", (ports.ends[far],)) if is_slow else ("congested", (ports.ends[slot],))
        ), seen

    def _unknown(self, per_s: NDArray[np.float64]) -> Iterator[Key]:
        """What is seen or held by counters of which nothing is told now stays as it is."""
        for key in self._holding.known:
            if key[0] in ("bit_errors", "congested", "slow_receiver", "counters"):
                rows = [self._ports.rows[self._ports.slot(end)] for end in key[1] if not isinstance(end, str)]
                if all(row < 0 or bool(np.isnan(per_s[row]).all()) for row in rows):
                    yield key

    def _take(self, seen: Mapping[Key, Seen], unsure: list[Key], now_s: float) -> None:
        begun, over = self._holding.step(seen, unsure, now_s)
        for key in over:
            self._close(key)
        for key in begun:
            self._open(key, seen[key])
        for key in self._of.keys() & seen.keys():
            self._of[key].evidence = list(seen[key].evidence)

    def _open(self, key: Key, seen: Seen) -> None:
        finding = Finding(
            number=0,
            kind=key[0],
            subject=seen.subject,
            confidence=1.0 / (1 + len(seen.also)),
            evidence=list(seen.evidence),
            start_s=time.time(),
            also=seen.also,
        )
        self._of[key] = self._findings.open(finding)
        self._note(FABRIC, finding.event_kind, f"{seen.subject.name}: {'; '.join(seen.evidence)}")

    def _close(self, key: Key) -> None:
        finding = self._of.pop(key)
        self._findings.close(finding, time.time())
        assert finding.end_s is not None
        lasted_s = finding.end_s - finding.start_s
        self._note(FABRIC, f"{finding.event_kind}_over", f"{finding.subject.name}: after {lasted_s:.1f} s")
