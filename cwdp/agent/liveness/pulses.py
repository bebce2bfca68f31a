"""The pulses of one NIC: small probes that tell the dataplane which of the watched paths are alive.

The paths are read from the map `paths`, whoever put them there. Which of them have a pulse now is `cwdp.agent.liveness.plan`'s
to say. Answers are the dataplane's to judge; what is read of them here only chooses the ways back
(`cwdp.agent.liveness.replyports`).
"""

import socket
from collections import Counter
from itertools import accumulate
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.plan import parted
from cwdp.agent.liveness.replyports import PORTS, ReplyTurns, draw_ports
from cwdp.agent.probing import packets
from cwdp.agent.probing.sender import MAX_BATCH, BatchSender, Signing
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Position, Sender, SlotState
from cwdp.dataplane.addresses import words_address

COUNTERS = ("pulses_sent", "pulses_unsent", "pulses_without_address")
FLOW_LABEL_MASK = 0x3FFF
SENDERS = {socket.AF_INET: Sender.PULSES_IPV4, socket.AF_INET6: Sender.PULSES_IPV6}
SEQ_END = 1 << 32

_SEQ_SHIFT = np.uint64(32)
_NO_SEQ = np.uint64(0xFFFFFFFF)


class PulseOrder(msgspec.Struct, frozen=True):
    """What the agent has a NIC's pulses be.

    Attributes:
        load: changes whenever the dataplane was loaded anew, so that its maps are opened anew.
        ipv4, ipv6: the addresses to send from.
    """

    ifname: str
    load: int
    key_id: int
    port: int
    ipv4: str | None
    ipv6: str | None


class Tables(Signing, Protocol):
    """What pulses need of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    slots: NDArray[np.void]
    paths: NDArray[np.void]


class _Ring:
    """The paths of one address family: a template for each turn and path, turn by turn."""

    def __init__(
        self, order: PulseOrder, tables: Tables, paths: list[packets.Path], rng: np.random.Generator
    ) -> None:
        self.numbers = np.array([path.number for path in paths], dtype=np.intp)
        self._templates = np.tile(packets.requests(paths, order.key_id, order.port), PORTS)
        if paths[0].family == socket.AF_INET6:
            self._templates["ip"]["flow"] |= self._templates["packet"]["sport"] & FLOW_LABEL_MASK
        probe = self._templates["packet"]["probe"]
        probe["pair_position"] = Position.PULSE
        self._reply_port, self._seq = probe["reply_port"], probe["seq"]
        self._ports = draw_ports(len(paths), rng)
        self._turns = ReplyTurns(len(paths))
        self._turn = np.zeros(len(paths), dtype=np.intp)
        self._remembered = np.zeros(len(self._templates), dtype=np.uint64)
        self._choose_ports()
        self._remember()
        self.sender = BatchSender(order.ifname, paths[0].family, self._templates)
        tables.sign_for(SENDERS[paths[0].family], self.sender.cookie)

    def send(self, chosen: NDArray[np.intp], seq: int) -> int:
        """Send a pulse over each chosen path, the first one with this number; returns how many were sent."""
        turn = self._turn[chosen]
        rows = turn * len(self.numbers) + chosen
        self._turn[chosen] = (turn + 1) % PORTS
        self._seq[rows] = np.arange(seq, seq + len(rows)) % SEQ_END
        return sum(
            self.sender.send_rows(rows[start : start + MAX_BATCH])[0]
            for start in range(0, len(rows), MAX_BATCH)
        )

    def judge(self, slots: NDArray[np.void], now_ns: int) -> None:
        """See what became of the pulses that were the last ones at the call before, and choose ways back."""
        tags = slots["tag"][self._slots]
        unanswered = tags == self._tags | np.uint64(SlotState.SENT)
        if unanswered.any() or self._turns.is_any_resting:
            answered = tags == self._tags | np.uint64(SlotState.DONE)
            self._turns.judge(self._by_port(answered), self._by_port(unanswered), now_ns)
        self._remember()
        self._choose_ports()

    def _choose_ports(self) -> None:
        path = np.arange(len(self.numbers))
        self._chosen = self._turns.order.T
        self._reply_port[:] = self._ports[path, self._chosen].ravel()

    def _remember(self) -> None:
        """Keep what the next judgement is about: the new pulses, the last of each turn, and their reply ports."""
        seq = self._seq.astype(np.uint64)
        self._tags = np.where(seq == self._remembered, _NO_SEQ, seq) << _SEQ_SHIFT
        self._remembered = seq
        self._slots = abi.SLOTS + (seq % np.uint64(abi.PULSE_SLOTS)).astype(np.intp)
        self._judged = self._chosen

    def _by_port(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether something holds for some pulse of each path and reply port; shape (paths, PORTS)."""
        turn, path = np.nonzero(rows.reshape(PORTS, -1))
        held = np.zeros((len(self.numbers), PORTS), dtype=bool)
        held[path, self._judged[turn, path]] = True
        return held


class Pulses:
    """Sends the pulses of one NIC.

    Args:
        order: what to send from, and how.
        tables: the interface's maps; they stay the caller's.
        rng: draws the first sequence number and the reply ports.
        counters: totals by name (`COUNTERS`), over all NICs.

    Attributes:
        numbers: of the watched paths that there is an address for.
    """

    def __init__(
        self, order: PulseOrder, tables: Tables, rng: np.random.Generator, counters: Counter[str]
    ) -> None:
        self._order, self._tables, self._rng, self._counters = order, tables, rng, counters
        self._next_seq = int(rng.integers(0, SEQ_END))
        self._watched = b""
        self._rings: list[_Ring] = []
        self._starts = [0]
        self.numbers = np.zeros(0, dtype=np.intp)

    def refresh(self, now_ns: int) -> bool:
        """Take up changes of the paths, and choose among ways back; meant for some twenty times a second.

        Returns:
            Whether the paths are others than before.

        Raises:
            OSError: a socket cannot be made or bound.
        """
        table = self._tables.paths
        numbers = np.flatnonzero((table["users"] > 0) | (table["detours"] > 0))
        numbers = numbers[numbers > 0]
        watched = table[numbers]
        kinds = (watched["primaries"] > 0).tobytes() + (watched["users"] > 0).tobytes()
        names = numbers.tobytes() + watched["dst"].tobytes() + watched["sport"].tobytes() + kinds
        names += watched["protocol"].tobytes()
        changed = names != self._watched
        if changed:
            self._take_up(numbers, watched)
            self._watched = names
        for ring in self._rings:
            ring.judge(self._tables.slots, now_ns)
        return changed

    def send(self, chosen: NDArray[np.intp]) -> None:
        """Send a pulse over each chosen path, by its place in `numbers`."""
        for ring, places in zip(self._rings, parted(chosen, self._starts), strict=True):
            if len(places):
                sent = ring.send(places, self._next_seq)
                self._counters["pulses_sent"] += sent
                self._counters["pulses_unsent"] += len(places) - sent
                self._next_seq = (self._next_seq + len(places)) % SEQ_END

    def take_numbers(self, count: int) -> int:
        """The first of so many sequence numbers for other probes that use the slots of pulses."""
        first = self._next_seq
        self._next_seq = (self._next_seq + count) % SEQ_END
        return first

    def close(self) -> None:
        """Close the sockets."""
        for ring in self._rings:
            ring.sender.close()
        self._rings = []

    def _take_up(self, numbers: NDArray[np.intp], watched: NDArray[np.void]) -> None:
        self.close()
        by_family: dict[int, list[packets.Path]] = {4: [], 6: []}
        sources = {4: self._order.ipv4, 6: self._order.ipv6}
        for number, record in zip(numbers.tolist(), watched, strict=True):
            address = words_address(record["dst"])
            source = sources[address.version]
            if source is None:
                self._counters["pulses_without_address"] += 1
                continue
            path = packets.Path(
                number, source, str(address), int(record["sport"]), 0, int(record["protocol"])
            )
            by_family[address.version].append(path)
        self._rings = [
            _Ring(self._order, self._tables, paths, self._rng) for paths in by_family.values() if paths
        ]
        self._starts = list(accumulate((len(ring.numbers) for ring in self._rings), initial=0))
        self.numbers = np.concatenate([np.zeros(0, np.intp), *(ring.numbers for ring in self._rings)])
