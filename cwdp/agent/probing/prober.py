"""One NIC's probes: sent in batches, their results read from the slots in bulk.

A probe's sequence number names its slot. Both probes of a pair are neighbours. The agent alone hands out sequence
numbers and never more than the table holds, so no result is overwritten: when it falls behind, it holds probes back and
counts them. Requests beside the schedule, which only ask who answers, have numbers among the others; no statistics and no
counters have them.
"""

import errno
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.packets import IPV4
from cwdp.agent.probing.schedule import FamilySchedule, Schedule
from cwdp.agent.probing.sender import MAX_BATCH, BatchSender, Signing
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Sender, SlotState

REPLY_TIMEOUT_NS = 300_000_000
"""Nothing in a fabric takes so long; a host whose processors are full or whose hypervisor stands still may take half."""

STAMP_NOISE_NS = 5.0
SENDERS = {socket.AF_INET: Sender.PAIRS_IPV4, socket.AF_INET6: Sender.PAIRS_IPV6}
CATCH_UP_S = 0.1
SEQ_MASK = 0xFFFFFFFF
STATE_MASK = np.uint64(0xFFFFFFFF)
SEQ_SHIFT = np.uint64(32)
COUNTERS = (
    "pairs_sent",
    "pairs_held_back",
    "pairs_skipped",
    "probes_abandoned",
    "probes_unsent",
    "probes_lost",
    "probes_answered",
)


Told = Callable[[NDArray[np.bool_], NDArray[np.bool_]], None]
"""Is told, of some requests in their order, which left the host and which were answered in time; both shape (n,)."""


@dataclass(frozen=True)
class ProbeResults:
    """What became of probes, in the order of sending; pairs are rows 2k and 2k + 1.

    Attributes:
        path: index into the schedule's paths, shape (n,), intp.
        sent: whether the probe left the host, shape (n,), bool.
        answered: whether its reply came in time; the other fields of `slots` hold then.
        slots: shape (n,), dtype `abi.SLOT`.
        noise_ns: standard deviation of one stamp.
    """

    path: NDArray[np.intp]
    sent: NDArray[np.bool_]
    answered: NDArray[np.bool_]
    slots: NDArray[np.void]
    noise_ns: float = STAMP_NOISE_NS


class Tables(Signing, Protocol):
    """What probes need of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    slots: NDArray[np.void]


@dataclass(frozen=True)
class _Batch:
    """Probes that were numbered together: pairs of the schedule by their paths, or requests beside it and who is told of them."""

    sent_ns: int
    count: int
    path: NDArray[np.intp]
    tell: Told | None = None


class _Ring:
    """The packets of one address family, sent round and round."""

    def __init__(self, ifname: str, tables: Tables, schedule: FamilySchedule) -> None:
        self.schedule = schedule
        self.sender = BatchSender(ifname, schedule.family, schedule.templates)
        tables.sign_for(SENDERS[schedule.family], self.sender.cookie)
        self._seq = schedule.templates["packet"]["probe"]["seq"]
        packet = schedule.templates["packet"]
        self._psn, is_udp = packet["bth"]["psn"], packet["len"] > 0
        self._psn_bits, self._urgent = np.where(is_udp, 0xFFFFFF, 0), np.where(is_udp, 0, self._psn)
        self._next = 0
        self._started_ns: int | None = None
        self._counted = 0

    def due(self, now_ns: int, counters: Counter[str]) -> int:
        """How many pairs should have left since the last call; a long stall is not made up for."""
        rate = self.schedule.pairs_per_s
        if self._started_ns is None:
            self._started_ns = now_ns
        wanted = int((now_ns - self._started_ns) * 1e-9 * rate) - self._counted
        most = max(1, int(rate * CATCH_UP_S))
        counters["pairs_skipped"] += max(0, wanted - most)
        self._counted += wanted
        return min(wanted, most)

    def take(self, pairs: int, seq: int) -> tuple[int, int]:
        """Number the next packets, up to the end of the ring; returns the rows [start, stop)."""
        start = self._next
        stop = min(start + 2 * pairs, start + MAX_BATCH, len(self._seq))
        numbers = np.arange(seq, seq + stop - start) & SEQ_MASK
        self._seq[start:stop] = numbers
        self._psn[start:stop] = numbers & self._psn_bits[start:stop] | self._urgent[start:stop]
        self._next = stop % len(self._seq)
        return start, stop


class Prober:
    """Sends one NIC's schedule and reads its results.

    Attributes:
        schedule: what is sent.
        counters: totals by name (`COUNTERS`).
        waited_ns: how long ago, at the last drain, the first probe had left that was not drained then; 0 for none.

    Args:
        ifname: the NIC.
        tables: its maps; they stay the caller's.
        schedule: what to send.
        seq: the first sequence number; taken on from the prober before, so that late replies to that
            one's probes are told apart.

    Raises:
        OSError: a socket cannot be made or bound.
    """

    def __init__(self, ifname: str, tables: Tables, schedule: Schedule, seq: int) -> None:
        self.schedule = schedule
        self._ifname, self._tables = ifname, tables
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._slots = tables.slots
        self._beside: dict[socket.AddressFamily, BatchSender] = {}
        self._head = self._tail = seq
        self._batches: deque[_Batch] = deque()
        self._rings: list[_Ring] = []
        self.waited_ns = 0
        try:
            for family in schedule.families:
                self._rings.append(_Ring(ifname, tables, family))
        except OSError:
            self.close()
            raise

    @property
    def seq(self) -> int:
        """The next sequence number."""
        return self._head & SEQ_MASK

    def close(self) -> None:
        """Close the sockets; nobody will ask for the results of probes that are still under way."""
        self.counters["probes_abandoned"] += sum(batch.count for batch in self._batches if batch.tell is None)
        for sender in (*(ring.sender for ring in self._rings), *self._beside.values()):
            sender.close()

    def send(self, now_ns: int, *, carrier: bool) -> None:
        """Send what is due."""
        for ring in self._rings:
            pairs = ring.due(now_ns, self.counters)
            free = (abi.SLOTS - (self._head - self._tail)) // 2
            if not carrier or pairs > free:
                held = pairs if not carrier else pairs - free
                self.counters["pairs_held_back"] += held
                pairs -= held
            while pairs > 0:
                pairs -= self._send_some(ring, pairs, now_ns)

    def ask(self, templates: NDArray[np.void], now_ns: int, tell: Told) -> bool:
        """Send requests beside the schedule; False where there is no room for them now.

        Args:
            templates: rows of `packets.requests` of one family, at most MAX_BATCH; they are numbered here.
            now_ns: the monotonic clock.
            tell: called by a later `drain`; never where this prober is closed before.

        Raises:
            OSError: a socket cannot be made or bound.
        """
        count = len(templates)
        if count > abi.SLOTS - (self._head - self._tail):
            return False
        sender = self._sender_beside(templates)
        numbers = np.arange(self._head, self._head + count) & SEQ_MASK
        packet = templates["packet"]
        packet["probe"]["seq"], packet["bth"]["psn"] = numbers, numbers & 0xFFFFFF
        self._batches.append(_Batch(now_ns, count, np.zeros(0, np.intp), tell))
        self._head += count
        self._send_rows(sender, 0, count)
        return True

    def _sender_beside(self, templates: NDArray[np.void]) -> BatchSender:
        """By the socket of the schedule's probes of this family, or by one of its own where there are none."""
        family = socket.AF_INET if templates["ip"].dtype == IPV4 else socket.AF_INET6
        senders = {ring.schedule.family: ring.sender for ring in self._rings} | self._beside
        if family not in senders:
            senders[family] = self._beside[family] = BatchSender(self._ifname, family, templates[:0])
            self._tables.sign_for(SENDERS[family], senders[family].cookie)
        return BatchSender(self._ifname, family, templates, senders[family].raw)

    def _send_some(self, ring: _Ring, pairs: int, now_ns: int) -> int:
        start, stop = ring.take(pairs, self._head)
        count = stop - start
        self._batches.append(_Batch(now_ns, count, ring.schedule.path[start // 2 : stop // 2]))
        self._head += count
        self._send_rows(ring.sender, start, stop)
        self.counters["pairs_sent"] += count // 2
        return count // 2

    def _send_rows(self, sender: BatchSender, start: int, stop: int) -> None:
        while start < stop:
            sent, code = sender.send(start, stop)
            if code:
                self.counters[f"send_{errno.errorcode.get(code, str(code)).lower()}"] += 1
                sent = 1
            start += sent

    def _is_over(self, seq: int, now_ns: int) -> bool:
        """Whether the oldest batch, which begins with `seq`, has been answered, or can be no more."""
        oldest = self._batches[0]
        if now_ns - oldest.sent_ns >= REPLY_TIMEOUT_NS:
            return True
        numbers = np.arange(seq, seq + oldest.count, dtype=np.uint64) & STATE_MASK
        tags = self._slots["tag"][(numbers % np.uint64(abi.SLOTS)).astype(np.intp)]
        return bool((tags == (numbers << SEQ_SHIFT | np.uint64(SlotState.DONE))).all())

    def drain(self, now_ns: int) -> ProbeResults | None:
        """Results, in the order of sending, up to the first probe that may still be answered; None where there are none."""
        over, count = list[_Batch](), 0
        while self._batches and self._is_over(self._tail + count, now_ns):
            over.append(self._batches.popleft())
            count += over[-1].count
        self.waited_ns = now_ns - self._batches[0].sent_ns if self._batches else 0
        if not count:
            return None
        slots, sent, answered = self._take(count)
        _tell(over, sent, answered)
        mine = np.repeat([batch.tell is None for batch in over], [batch.count for batch in over])
        if not mine.any():
            return None
        slots, sent, answered = slots[mine], sent[mine], answered[mine]
        self.counters["probes_unsent"] += int(np.count_nonzero(~sent))
        self.counters["probes_lost"] += int(np.count_nonzero(sent & ~answered))
        self.counters["probes_answered"] += int(np.count_nonzero(answered))
        return ProbeResults(
            np.repeat(np.concatenate([batch.path for batch in over]), 2), sent, answered, slots
        )

    def _take(self, count: int) -> tuple[NDArray[np.void], NDArray[np.bool_], NDArray[np.bool_]]:
        """The slots of the oldest probes, which of these were sent and which answered; they can be answered no more."""
        seq = np.arange(self._tail, self._tail + count, dtype=np.uint64) & STATE_MASK
        index = (seq % np.uint64(abi.SLOTS)).astype(np.intp)
        slots = self._slots[index]
        self._tail += count
        state = slots["tag"] & STATE_MASK
        sent = slots["tag"] >> SEQ_SHIFT == seq
        answered = sent & (state == SlotState.DONE)
        waiting = sent & ~answered
        self._slots["tag"][index[waiting]] = seq[waiting] << SEQ_SHIFT | np.uint64(SlotState.FREE)
        return slots, sent, answered


def _tell(batches: Sequence[_Batch], sent: NDArray[np.bool_], answered: NDArray[np.bool_]) -> None:
    """Have those told that asked beside the schedule."""
    start = 0
    for batch in batches:
        stop = start + batch.count
        if batch.tell is not None:
            batch.tell(sent[start:stop], answered[start:stop])
        start = stop
