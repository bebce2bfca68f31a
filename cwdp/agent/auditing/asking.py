"""Whom this host's NICs reach: each asks each of some addresses over many ports, once for an audit.

A port that brings nothing back is tried again, half a second later or more, up to `TRIES` times in all. Where packets are lost
at 1 % each way, all tries of a port are by a chance of 3e-9: of the 40 million ports that a fleet of a thousand hosts asks,
none is silent by such losses.
"""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.prober import Told
from cwdp.shared.audit.asks import (
    IPV4_BYTES,
    IPV6_BYTES,
    MOST_PROBES,
    MOST_SHOWN,
    MOST_SILENT,
    Ask,
    Asked,
    AskedNic,
    Silent,
)

COUNTERS = ("asks_sent", "asks_answered", "asks_unsent")
TRIES, ROUNDS = 5, 7
"""Of a port; and rounds in which it may have them: what is probed may change meanwhile, and then nothing is told of some."""

FIRST_PORT, PORTS = 49_152, 16_384

Rows = NDArray[np.intp]


class AskingNic(Protocol):
    """A NIC that can ask; see `cwdp.agent.nic.HostNic`."""

    ifname: str

    def address(self, family: socket.AddressFamily) -> str | None:
        """Its own."""

    def ask(self, asked: Sequence[tuple[str, int]], now_ns: int, tell: Told) -> bool:
        """Send a request to each of some addresses over a port."""


@dataclass(frozen=True)
class Limits:
    """What it may cost.

    Attributes:
        at_once: requests that leave a NIC together.
        step_s: time between two such; another NIC may be next.
        again: ports that are tried again in each further round: with more silent than that nobody needs each by itself.
        wait_s: for what is told of requests; replies are waited for 0.3 s, and looked for four times a second.
        apart_s: between what is known of all requests of a round, and the next round.
        all_s: for all; what is not asked then is told as not settled.
    """

    at_once: int = 40
    step_s: float = 0.02
    again: int = 4_000
    wait_s: float = 1.0
    apart_s: float = 0.3
    all_s: float = 25.0


class Asking:
    """Asks from this host.

    Args:
        nics: those that can.
        counters: totals by name, to which `COUNTERS` are added.
        limits: what it may cost.
    """

    def __init__(
        self, nics: Sequence[AskingNic], counters: Counter[str], limits: Limits | None = None
    ) -> None:
        self._counters = counters
        counters.update(dict.fromkeys(COUNTERS, 0))
        self._nics = {nic.ifname: nic for nic in nics}
        self._limits = limits or Limits()

    async def make(self, ask: Ask) -> Asked:
        """What comes of asking; NICs that are not there, and addresses of a family that a NIC has none of, are left out."""
        rng, ends_s = np.random.default_rng(), time.monotonic() + self._limits.all_s
        asks = _Asks(ask, [self._nics[name] for name in ask.nics if name in self._nics], rng)
        for number in range(ROUNDS):
            chosen = asks.due(self._limits.again if number else len(asks.tries), rng)
            if not len(chosen) or time.monotonic() >= ends_s:
                break
            if number:
                await asyncio.sleep(self._limits.apart_s)
            await self._round(asks, chosen, rng, ends_s)
        self._counters["asks_answered"] += int(np.count_nonzero(asks.answered))
        return asks.told(rng)

    async def _round(self, asks: "_Asks", chosen: Rows, rng: np.random.Generator, ends_s: float) -> None:
        """Ask over each of some ports once, and wait for what is told."""
        batches = list(asks.batches(chosen, self._limits.at_once, rng))
        for number in rng.permutation(len(batches)).tolist():
            if time.monotonic() >= ends_s:
                break
            self._send(asks, batches[number])
            await asyncio.sleep(self._limits.step_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.wait_s):
                await asks.all_told.wait()
        asks.expect_no_more()

    def _send(self, asks: "_Asks", rows: Rows) -> None:
        nic, asked = asks.begin(rows)
        if nic.ask(asked, time.monotonic_ns(), partial(asks.tell, rows)):
            self._counters["asks_sent"] += len(rows)
        else:
            self._counters["asks_unsent"] += len(rows)
            asks.tell(rows, np.zeros(len(rows), bool), np.zeros(len(rows), bool))


class _Asks:
    """The ports of each pair of NIC and address, pair by pair: what became of each.

    Attributes:
        tries: how often it is known what became of a request over each, shape (pairs * ports,).
        answered: whether one was, shape (pairs * ports,).
        all_told: set while nothing is under way of which nothing is known.
    """

    def __init__(self, ask: Ask, nics: Sequence[AskingNic], rng: np.random.Generator) -> None:
        self._pairs = [
            (nic, address)
            for nic in nics
            for family, addresses in _addresses(ask)
            if nic.address(family) is not None
            for address in addresses
        ]
        self._ports = min(ask.ports, MOST_PROBES // max(len(self._pairs), 1))
        count = len(self._pairs) * self._ports
        self._sports = rng.integers(FIRST_PORT, FIRST_PORT + PORTS, count)
        self.tries = np.zeros(count, np.intp)
        self.all_told = asyncio.Event()
        self.answered, self._left, self._under_way = np.zeros((3, count), bool)

    def begin(self, rows: Rows) -> tuple[AskingNic, list[tuple[str, int]]]:
        """The NIC that some rows are of, and the address and the port of each; they are under way now."""
        self._under_way[rows] = True
        self.all_told.clear()
        pairs = [self._pairs[row // self._ports] for row in rows.tolist()]
        ports: list[int] = self._sports[rows].tolist()
        return pairs[0][0], [(address, port) for (_, address), port in zip(pairs, ports, strict=True)]

    def due(self, most: int, rng: np.random.Generator) -> Rows:
        """Rows to ask over now: first those that were asked most often, then as many of each pair."""
        rows = np.flatnonzero(~self.answered & (self.tries < TRIES))
        pair = rows // max(self._ports, 1)
        is_first = np.ones(len(rows), bool)
        is_first[1:] = pair[1:] != pair[:-1]
        place = np.arange(len(rows))
        turn = place - np.maximum.accumulate(np.where(is_first, place, 0))
        return rows[np.lexsort((rng.random(len(rows)), turn, -self.tries[rows]))[:most]]

    def batches(self, rows: Rows, at_once: int, rng: np.random.Generator) -> Iterable[Rows]:
        """Rows of one NIC and family each, of different addresses as far as there are."""
        by_way: dict[tuple[str, bool], list[int]] = {}
        for row in rng.permutation(rows).tolist():
            nic, address = self._pairs[row // self._ports]
            by_way.setdefault((nic.ifname, ":" in address), []).append(row)
        for mine in by_way.values():
            for start in range(0, len(mine), at_once):
                yield np.array(mine[start : start + at_once], np.intp)

    def tell(self, rows: Rows, sent: NDArray[np.bool_], answered: NDArray[np.bool_]) -> None:
        """It is known what became of requests over some rows."""
        self.tries[rows] += 1
        self._left[rows] |= sent
        self.answered[rows] |= answered
        self._under_way[rows] = False
        if not self._under_way.any():
            self.all_told.set()

    def expect_no_more(self) -> None:
        """Nothing is told any more of what is under way."""
        self._under_way[:] = False

    def told(self, rng: np.random.Generator) -> Asked:
        """What the manager is told."""
        shape = (len(self._pairs), self._ports)
        answered, left = self.answered.reshape(shape), self._left.reshape(shape)
        silent = ~answered & (self.tries.reshape(shape) >= TRIES)
        heard, lost = answered.sum(axis=1), silent.sum(axis=1)
        nics: dict[str, tuple[int, int]] = {}
        for pair, (nic, _) in enumerate(self._pairs):
            asked, back = nics.get(nic.ifname, (0, 0))
            nics[nic.ifname] = asked + int(heard[pair] + lost[pair]), back + int(heard[pair])
        is_mute = np.array([nics[nic.ifname][1] == 0 for nic, _ in self._pairs], bool)
        listed = np.flatnonzero((lost > 0) & ~is_mute)
        listed = listed[np.lexsort((rng.random(len(listed)), heard[listed] > 0))]
        sports = self._sports.reshape(shape)
        return Asked(
            nics=[AskedNic(nic=name, asked=asked, answered=back) for name, (asked, back) in nics.items()],
            silent=[
                Silent(
                    nic=self._pairs[pair][0].ifname,
                    dst_addr=self._pairs[pair][1],
                    asked=int(heard[pair] + lost[pair]),
                    answered=int(heard[pair]),
                    unsent=int((silent[pair] & ~left[pair]).sum()),
                    sports=sports[pair][silent[pair]][:MOST_SHOWN].tolist(),
                )
                for pair in listed[:MOST_SILENT].tolist()
            ],
            beyond=max(len(listed) - MOST_SILENT, 0),
            unsettled=int(np.count_nonzero((lost == 0) & (heard < self._ports)))
            if self._ports
            else len(self._pairs),
        )


def _addresses(ask: Ask) -> Iterable[tuple[socket.AddressFamily, list[str]]]:
    """The addresses of each family; a rest that is none is left out."""
    for family, packed, size in (
        (socket.AF_INET, ask.ipv4, IPV4_BYTES),
        (socket.AF_INET6, ask.ipv6, IPV6_BYTES),
    ):
        yield (
            family,
            [
                socket.inet_ntop(family, packed[at : at + size])
                for at in range(0, len(packed) - size + 1, size)
            ],
        )
