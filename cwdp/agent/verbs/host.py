"""All that the process for the verbs shim does, on one socket for programs and one for what becomes of paths."""

import os
import socket
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from cwdp.agent.ud.orders import DownPaths
from cwdp.agent.verbs import clients, moves, queuepairs
from cwdp.agent.verbs.clients import Client, Clients
from cwdp.agent.verbs.migration import steps
from cwdp.agent.verbs.migration.steps import Steps
from cwdp.agent.verbs.moves import Moves
from cwdp.agent.verbs.orders import VerbsOrder, VerbsPathChange, VerbsWord
from cwdp.agent.verbs.queuepairs import Pair, QueuePairs
from cwdp.agent.verbs.routes import is_sane, table
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import Message, Moved, QpPath, QpState, Sent
from cwdp.shared.verbs import MigrationOrder

COUNTERS = (
    "tables",
    "tables_failed",
    "spreads_refused",
    "told_garbage",
    "down_paths",
    "failure_us",
    "failure_us_max",
)
"""The last two: from when a path was found to be silent until all its queue pairs were told, the last time and the longest."""

LONGEST_US = 60_000_000
RETRY_NS, TIDY_NS = 10_000_000, 500_000_000
TABLE_CALM_NS, TABLE_LATE_NS = 100_000_000, 500_000_000
"""A table is made anew when nothing has changed for so long, as it takes its time, and at last after so long: paths that one
failure takes are found one after the other, and orders to move come first."""

SAID_AT_ONCE, SENT_AT_ONCE, MOST_PATH_CHANGES = 2_048, 8_192, 1_024
URGENT_BYTES = 1 << 20
SILENT_NS = 10_000_000_000
"""What was said to be down is forgotten where nobody has said so again for so long."""


class VerbsHost:
    """The programs of a host.

    Args:
        listener: a unix socket that listens for them; it stays the caller's.
        urgent: a datagram socket by which `DownPaths` and `MigrationOrder`s come, as JSON; it stays the caller's.
    """

    def __init__(self, listener: socket.socket, urgent: socket.socket) -> None:
        names = (
            *COUNTERS, *clients.COUNTERS, *queuepairs.COUNTERS, *moves.COUNTERS, *moves.TIMES, *steps.COUNTERS,
        )  # fmt: skip
        self.counters: Counter[str] = Counter(dict.fromkeys(names, 0))
        self._queue_pairs = QueuePairs(self.counters)
        self._moves = Moves(self._queue_pairs, self.counters)
        self._migrations = Steps(self._queue_pairs, self.counters)
        self._clients = Clients(listener, self, self.counters)
        self._urgent = urgent
        urgent.setblocking(False)
        self._order = VerbsOrder()
        self._heard_down_ns: dict[str, int] = {}
        self._path_changes: list[VerbsPathChange] = []
        self._table = b""
        self._table_fd = -1
        self._table_due_ns: int | None = 0
        self._table_late_ns = self._tidied_ns = self._retried_ns = 0

    def follow(self, order: VerbsOrder) -> None:
        """Have everything be as ordered."""
        sane = [spread for spread in order.spreads if is_sane(spread)]
        self.counters["spreads_refused"] += len(order.spreads) - len(sane)
        order = msgspec.structs.replace(order, spreads=sane)
        before, self._order = self._order, order
        self._queue_pairs.know(order.sources, sane)
        self._decide(self._moves.follow(order))
        if (before.sources, before.spreads) != (order.sources, order.spreads):
            self._table_is_stale()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do until something comes."""
        return not len(self._clients) and self._table_due_ns is None

    def filenos(self) -> tuple[int, int]:
        """Readable when there is something to do."""
        return self._clients.fileno(), self._urgent.fileno()

    def step(self) -> bool:
        """Do what there is to do: what concerns failures first. Whether there may be more at once."""
        self._hear_urgent()
        more = self._clients.turn(time.monotonic_ns())
        now_ns = time.monotonic_ns()
        if now_ns - self._tidied_ns >= TIDY_NS:
            self._tidied_ns = now_ns
            self._clients.tidy(now_ns)
            self._forget_silent(now_ns)
        if now_ns - self._retried_ns >= RETRY_NS:
            self._retried_ns = now_ns
            self._moves.tidy(self._clients, now_ns)
            self._migrations.tidy(self._clients, now_ns)
        if self._table_due_ns is not None and now_ns >= self._table_due_ns:
            self._renew_table()
        return more

    def has_news(self) -> bool:
        """Whether queue pairs or paths have changed."""
        return self._queue_pairs.has_changes() or bool(self._path_changes)

    def has_answers(self) -> bool:
        """Whether there is something that a leader waits for."""
        return self._migrations.has_answers()

    def word(self) -> VerbsWord:
        """What there is to be said."""
        anew, changed, gone = self._queue_pairs.take_changes(SAID_AT_ONCE)
        counters = {f"verbs_{name}": n for name, n in self.counters.items()}
        paths, self._path_changes = self._path_changes, []
        return VerbsWord(
            anew=anew,
            changed=changed,
            gone=gone,
            paths=paths,
            sent=self._queue_pairs.take_sent(SENT_AT_ONCE),
            migrated=self._migrations.take_answers(),
            counters=counters,
        )

    def hear(self, client: Client, message: Message) -> bool:
        """A program says something; whether it was asked to."""
        if isinstance(message, Moved):
            qp = self._queue_pairs.of(client, (message.device, message.qpn))
            if qp is None:
                return False
            asked = self._migrations.hear if qp.by_lid else self._moves.hear_moved
            return asked(qp, message)
        qp = None
        if isinstance(message, QpPath):
            qp = self._queue_pairs.hear_path(client, message)
        elif isinstance(message, QpState):
            qp = self._queue_pairs.hear_state(client, message)
        elif isinstance(message, Sent):
            self._queue_pairs.hear_sent(client, message)
        if qp is not None and qp.sends:
            self._moves.decide((qp,), self._clients)
        return False

    def end(self, client: Client) -> None:
        """A program is gone."""
        self._queue_pairs.end(client)

    def close(self) -> None:
        """Let go of all."""
        self._clients.close()
        if self._table_fd >= 0:
            os.close(self._table_fd)

    def _hear_urgent(self) -> None:
        while True:
            try:
                told = read_urgent(self._urgent.recv(URGENT_BYTES))
            except BlockingIOError:
                return
            except msgspec.MsgspecError:
                self.counters["told_garbage"] += 1
                continue
            if isinstance(told, MigrationOrder):
                self._migrations.order(told, self._clients, time.monotonic_ns())
                continue
            self._heard_down_ns[told.nic] = time.monotonic_ns()
            self._take_down(told)

    def _take_down(self, told: DownPaths) -> None:
        before = self._moves.down.get(told.nic, frozenset())
        changed = self._moves.hear_down(told.nic, told.paths)
        if changed:
            failed = self.counters["moves_for_failure"]
            self._decide(changed)
            self._note_paths(told.nic, before, self.counters["moves_for_failure"] - failed)
            if told.decided_ns and self.counters["moves_for_failure"] > failed:
                self._note_failure(told.decided_ns)
            self._table_is_stale()
            self.counters["down_paths"] = sum(map(len, self._moves.down.values()))

    def _note_paths(self, nic: str, before: frozenset[tuple[str, int]], ordered: int) -> None:
        """Keep for the next word which paths have changed."""
        now = self._moves.down[nic]
        changes = [
            VerbsPathChange(nic, *path, path in now, ordered if path in now else 0)
            for path in sorted(before ^ now)
        ]
        self._path_changes = (self._path_changes + changes)[-MOST_PATH_CHANGES:]

    def _note_failure(self, decided_ns: int) -> None:
        took_us = min(max(0, time.monotonic_ns() - decided_ns) // 1_000, LONGEST_US)
        self.counters["failure_us"] = took_us
        self.counters["failure_us_max"] = max(self.counters["failure_us_max"], took_us)

    def _forget_silent(self, now_ns: int) -> None:
        for nic, heard_ns in list(self._heard_down_ns.items()):
            if now_ns - heard_ns > SILENT_NS:
                del self._heard_down_ns[nic]
                self._take_down(DownPaths(nic, []))

    def _decide(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._moves.decide(self._queue_pairs.between(pair), self._clients)

    def _table_is_stale(self) -> None:
        now_ns = time.monotonic_ns()
        if self._table_due_ns is None:
            self._table_late_ns = now_ns + TABLE_LATE_NS
        if self._table_fd >= 0:
            self._table_due_ns = min(now_ns + TABLE_CALM_NS, self._table_late_ns)

    def _renew_table(self) -> None:
        fresh = table(self._order, self._moves.down, self.counters["tables"] + 1)
        self._table_due_ns = None
        if self._table_fd >= 0 and fresh[_CONTENT:] == self._table[_CONTENT:]:
            return
        try:
            fd = shimwire.sealed(fresh)
        except OSError:
            self.counters["tables_failed"] += 1
            self._table_due_ns = time.monotonic_ns() + TABLE_LATE_NS
            return
        self.counters["tables"] += 1
        self._clients.give_table(fd)
        if self._table_fd >= 0:
            os.close(self._table_fd)
        self._table, self._table_fd = fresh, fd


def read_urgent(data: bytes) -> DownPaths | MigrationOrder:
    """What those that watch paths, or the agent, have said.

    Raises:
        msgspec.MsgspecError: it is neither.
    """
    try:
        return msgspec.json.decode(data, type=DownPaths)
    except msgspec.ValidationError:
        return msgspec.json.decode(data, type=MigrationOrder)


_CONTENT = shimwire.TABLE.fields["sources"][1] if shimwire.TABLE.fields else 0
"""From here on two tables with the same content are alike."""
