"""The pulses of one NIC: small probes that tell the dataplane which of the watched paths are alive.

The paths are read from the map `paths`, whoever put them there. While all is well, those that only back others up
have a pulse now and then; as soon as something is not, all of them have every one. That lasts for a while only: where
answers stay late because hosts are overloaded, more pulses would make it worse. Answers are the dataplane's to judge;
what is read of them here only chooses the ways back (`cwdp.agent.replyports`).
"""

import socket
from collections import Counter
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.agent import packets
from cwdp.agent.replyports import PORTS, ReplyTurns, draw_ports
from cwdp.agent.sender import MAX_BATCH, BatchSender, Signing
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, Position, Sender, SlotState
from cwdp.dataplane.steering import words_address

COUNTERS = ("pulses_sent", "pulses_unsent", "pulses_without_address")
URGENT_FROM = 2
URGENT_BELOW = 16
SPARE_EVERY = 9
"""Pulses to one of a path that is only a backup, while all is well; has no factor in common with PORTS."""

MOST_HASTE, CALM_TURNS = 256, 8
"""Turns with more pulses than usual, of which one is given back for so many turns that needed none."""

FLOW_LABEL_MASK = 0x3FFF
SENDERS = {socket.AF_INET: Sender.PULSES_IPV4, socket.AF_INET6: Sender.PULSES_IPV6}
SEQ_END = 0xFFFFFFFF - abi.PATHS

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
    """What pulses need of the open maps of an interface; see `cwdp.dataplane.maps.Maps`."""

    slots: NDArray[np.void]
    paths: NDArray[np.void]


class _Ring:
    """The paths of one address family: a template for each turn and path, turn by turn.

    The first `in_use` of the paths are more than backups.
    """

    def __init__(
        self,
        order: PulseOrder,
        tables: Tables,
        paths: list[packets.Path],
        in_use: int,
        rng: np.random.Generator,
    ) -> None:
        self.numbers = np.array([path.number for path in paths], dtype=np.intp)
        self._in_use = in_use
        self._templates = np.tile(packets.requests(paths, order.key_id, order.port), PORTS)
        if paths[0].family == socket.AF_INET6:
            self._templates["ip"]["flow"] |= self._templates["packet"]["sport"] & FLOW_LABEL_MASK
        probe = self._templates["packet"]["probe"]
        probe["pair_position"] = Position.PULSE
        self._reply_port, self._seq = probe["reply_port"], probe["seq"]
        self._ports = draw_ports(len(paths), rng)
        self._turns = ReplyTurns(len(paths))
        self._turn = 0
        self._remembered = np.zeros(len(self._templates), dtype=np.uint64)
        self._choose_ports()
        self._remember()
        self.sender = BatchSender(order.ifname, paths[0].family, self._templates)
        tables.sign_for(SENDERS[paths[0].family], self.sender.cookie)

    def send(self, seq: int, *, spares: bool) -> tuple[int, int]:
        """Send a pulse over each path, or each in use; returns how many there were, and were sent.

        Args:
            seq: the number of the first one.
            spares: over those that are only backups too.
        """
        start = self._next_turn()
        stop = start + (len(self.numbers) if spares else self._in_use)
        self._seq[start:stop] = np.arange(seq, seq + stop - start)
        sent = sum(
            self.sender.send(row, min(row + MAX_BATCH, stop))[0] for row in range(start, stop, MAX_BATCH)
        )
        return stop - start, sent

    def send_some(self, chosen: NDArray[np.intp], seq: int) -> tuple[int, int]:
        """Send one over each chosen path, at most MAX_BATCH; returns what `send` does."""
        rows = self._next_turn() + chosen[:MAX_BATCH]
        self._seq[rows] = np.arange(seq, seq + len(rows))
        return len(rows), self.sender.send_rows(rows)[0]

    def judge(self, slots: NDArray[np.void], now_ns: int) -> None:
        """See what became of the pulses that were the last ones at the call before, and choose ways back."""
        tags = slots["tag"][self._slots]
        unanswered = tags == self._tags | np.uint64(SlotState.SENT)
        if unanswered.any() or self._turns.is_any_resting:
            answered = tags == self._tags | np.uint64(SlotState.DONE)
            self._turns.judge(self._by_port(answered), self._by_port(unanswered), now_ns)
        self._remember()
        self._choose_ports()

    def _next_turn(self) -> int:
        """The first row of the next turn."""
        self._turn = (self._turn + 1) % PORTS
        return self._turn * len(self.numbers)

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
    """

    def __init__(
        self, order: PulseOrder, tables: Tables, rng: np.random.Generator, counters: Counter[str]
    ) -> None:
        self._order, self._tables, self._rng, self._counters = order, tables, rng, counters
        self._next_seq = int(rng.integers(0, SEQ_END))
        self._numbers = np.zeros(0, dtype=np.intp)
        self._unanswered = tables.paths["unanswered"]
        self._watched = b""
        self._turn = 0
        self._haste = MOST_HASTE * CALM_TURNS
        self._in_use = self._numbers
        self._rings: list[_Ring] = []

    @property
    def count(self) -> int:
        """How many paths are watched."""
        return len(self._numbers)

    def refresh(self, now_ns: int) -> None:
        """Take up changes of the paths, and choose among ways back; meant for some twenty times a second.

        Raises:
            OSError: a socket cannot be made or bound.
        """
        table = self._tables.paths
        numbers = np.flatnonzero((table["users"] > 0) | (table["spares"] > 0))
        numbers = numbers[numbers > 0]
        in_use = table["primaries"][numbers] > 0
        numbers = np.concatenate([numbers[in_use], numbers[~in_use]])
        watched = table[numbers]
        names = numbers.tobytes() + watched["dst"].tobytes() + watched["sport"].tobytes() + in_use.tobytes()
        if names != self._watched:
            self._take_up(numbers, watched, int(in_use.sum()))
            self._watched = names
        for ring in self._rings:
            ring.judge(self._tables.slots, now_ns)

    def send(self) -> None:
        """Send a pulse over every path, or every one that needs it."""
        self._turn += 1
        spares = self._make_haste() or self._turn % SPARE_EVERY == 0
        for ring in self._rings:
            self._count(*ring.send(self._next_seq, spares=spares))

    def send_urgent(self) -> None:
        """Send one over each path that may be found dead within the next few."""
        urgent = self._urgent()
        for ring in self._rings:
            chosen = np.flatnonzero(np.isin(ring.numbers, urgent))
            if len(chosen):
                self._count(*ring.send_some(chosen, self._next_seq))

    def is_urgent(self) -> bool:
        """Whether some path's last pulses are unanswered, it has not been given up yet, and more may be sent."""
        return self._haste >= CALM_TURNS and len(self._urgent()) > 0

    def close(self) -> None:
        """Close the sockets."""
        for ring in self._rings:
            ring.sender.close()
        self._rings = []

    def _make_haste(self) -> bool:
        """Whether this turn has more pulses than usual."""
        wanted = len(self._urgent()) > 0 or self._is_any_down()
        if not wanted:
            self._haste = min(self._haste + 1, MOST_HASTE * CALM_TURNS)
        elif self._haste >= CALM_TURNS:
            self._haste -= CALM_TURNS
            return True
        return False

    def _urgent(self) -> NDArray[np.intp]:
        """The numbers of those paths."""
        unanswered = self._unanswered[self._numbers]
        chosen: NDArray[np.intp] = self._numbers[(unanswered >= URGENT_FROM) & (unanswered < URGENT_BELOW)]
        if len(chosen):
            chosen = chosen[self._tables.paths["state"][chosen] == PathState.UP]
        return chosen

    def _is_any_down(self) -> bool:
        """Whether some path in use has been given up, so that its backup is in use."""
        return bool((self._tables.paths["state"][self._in_use] == PathState.DOWN).any())

    def _count(self, wanted: int, sent: int) -> None:
        self._counters["pulses_sent"] += sent
        self._counters["pulses_unsent"] += wanted - sent
        self._next_seq = (self._next_seq + wanted) % SEQ_END

    def _take_up(self, numbers: NDArray[np.intp], watched: NDArray[np.void], in_use: int) -> None:
        self.close()
        self._numbers, self._in_use = numbers, numbers[:in_use]
        by_family: dict[int, list[packets.Path]] = {4: [], 6: []}
        sources = {4: self._order.ipv4, 6: self._order.ipv6}
        for number, record in zip(numbers.tolist(), watched, strict=True):
            address = words_address(record["dst"])
            source = sources[address.version]
            if source is None:
                self._counters["pulses_without_address"] += 1
                continue
            path = packets.Path(number, source, str(address), int(record["sport"]), 0)
            by_family[address.version].append(path)
        used = set(self._in_use.tolist())
        self._rings = [
            _Ring(self._order, self._tables, paths, sum(path.number in used for path in paths), self._rng)
            for paths in by_family.values()
            if paths
        ]
