"""Keeps the process that serves programs with the verbs shim (`cwdp.agent.verbs.process`)."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from cwdp.agent.config import VerbsConfig
from cwdp.agent.helper import Helper
from cwdp.agent.programs.listening import listen_soon
from cwdp.agent.ud.orders import DownPaths
from cwdp.agent.verbs.orders import VerbsOrder, VerbsPathChange, VerbsQp, VerbsSource, VerbsWord
from cwdp.agent.verbs.owners import Owners
from cwdp.agent.verbs.sources import BoundCounts, lid_sources, sources
from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.messages import Spread, SteerQp
from cwdp.shared.verbs import MigrationAnswer, MigrationOrder

LOOK_S = 5.0
PATHS_BYTES = 1 << 20
MOST_IB_PORTS = 256
"""Of a hello."""

STATES = frozenset(
    f"verbs_{name}"
    for name in ("clients", "queue_pairs", "down_paths", "failure_us", "failure_us_max", "move_took_us_max")
)
"""What of the process's numbers are no totals."""


class VerbsKeeper(Helper[VerbsOrder]):
    """The process as the agent sees it: it is there before the first program, which finds a table.

    Args:
        config: the socket, and whether queue pairs may be drained.
        nics: whose queue pairs it looks after.
        moved: those of them without a dataplane, whose queue pairs are moved.

    Attributes:
        changes: grows when queue pairs change.
        watcher: by which those that watch paths tell of them (`DownPaths`); a descriptor that processes inherit.
        on_migrated: is told what came of steps of migrations.
    """

    def __init__(self, config: VerbsConfig, nics: Collection[str], moved: Collection[str]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.watcher, self._paths = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.watcher.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PATHS_BYTES)
        self.watcher.setblocking(False)
        inherits = self._listener.fileno(), self._paths.fileno()
        super().__init__(
            "cwdp.agent.verbs.process",
            [str(fd) for fd in inherits],
            "verbs_restarts",
            VerbsOrder(drains=config.drain, moved=sorted(moved)),
            inherits,
        )
        self._socket, self._nics, self._by_lids = Path(config.socket), nics, config.lids
        self._queue_pairs: dict[int, VerbsQp] = {}
        self._sent: dict[int, int] = {}
        self._path_changes: list[VerbsPathChange] = []
        self.changes = 0
        self.on_migrated: Callable[[list[MigrationAnswer]], None] = lambda _answers: None
        self._owners = Owners()
        self._bound = BoundCounts()
        self._own: Counter[str] = Counter(verbs_unusable=0)

    @property
    def counters(self) -> Counter[str]:
        """Totals of all its processes and its own, by name."""
        total = super().counters
        total.update(self._own)
        total.update(self._owners.counters)
        return total

    @property
    def queue_pairs(self) -> list[VerbsQp]:
        """Those that programs have told of and the kernel does not say are others'."""
        return [qp for qp in self._queue_pairs.values() if qp.nic and self._owners.admit(qp)]

    def sent(self, qp: VerbsQp) -> int | None:
        """Bytes that a queue pair has sent by the kernel's count, else by what its program has posted; None without either."""
        bound = self._bound.of(qp.device, qp.lqpn)
        return self._sent.get(qp.number) if bound is None else bound

    @property
    def spreads(self) -> list[Spread]:
        """How new ones are spread."""
        return self._wanted.spreads

    @property
    def ports(self) -> dict[str, tuple[str, int]]:
        """The RDMA device and port of each NIC that has one."""
        return {source.nic: (source.device, source.port) for source in self._wanted.sources}

    @property
    def ib_ports(self) -> list[IbPort]:
        """Those of InfiniBand with the LIDs that programs may take; some of them where there are very many."""
        ports = [
            IbPort(one.nic, one.gid, PortLids(one.lid, one.lmc)) for one in self._wanted.sources if one.lid
        ]
        return ports[:MOST_IB_PORTS]

    @property
    def drains(self) -> bool:
        """Whether queue pairs may be drained to be moved."""
        return self._wanted.drains

    def take_path_changes(self) -> list[VerbsPathChange]:
        """Paths that are down, or not any more, since the last call."""
        taken, self._path_changes = self._path_changes, []
        return taken

    def order(self, spreads: list[Spread], steer: list[SteerQp]) -> None:
        """Have new queue pairs spread and those that are there steered so."""
        mine = [one for one in steer if one.nic in self._wanted.moved]
        wanted = [one for one in spreads if one.nic in self._nics or (self._by_lids and one.lids is not None)]
        self._want(msgspec.structs.replace(self._wanted, spreads=wanted, steer=mine))

    def tell_down(self, nic: str, paths: Iterable[tuple[str, int]]) -> None:
        """All paths of a NIC that are down now."""
        if self.is_running:
            with contextlib.suppress(BlockingIOError):
                self.watcher.send(msgspec.json.encode(DownPaths(nic, list(paths))))

    def migrate(self, order: MigrationOrder) -> bool:
        """Have queue pairs take steps of migrations; False where the process is not there, or has too much to do."""
        if not self.is_running:
            return False
        try:
            self.watcher.send(msgspec.json.encode(order))
        except OSError:
            return False
        return True

    async def run(self) -> None:
        """Keep it running until cancelled, once programs can connect; once only."""
        try:
            await listen_soon(self._listener, self._socket, self._own, "verbs_unusable")
            await self._look_for_sources()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(super().run())
                tasks.create_task(self._know_sources())
                tasks.create_task(self._owners.follow(lambda: bool(self._queue_pairs)))
                tasks.create_task(self._bound.follow(lambda: bool(self._queue_pairs)))
        finally:
            self.close()

    def look_soon(self) -> None:
        """Have the kernel's list of queue pairs read."""
        self._owners.look_soon()

    def close(self) -> None:
        """Give back its sockets."""
        for sock in (self._listener, self.watcher, self._paths):
            sock.close()

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=VerbsWord)
        self.changes += bool(word.anew or word.changed or word.gone)
        if word.anew:
            self._queue_pairs.clear()
        self._queue_pairs.update((qp.number, qp) for qp in word.changed)
        self._sent.update(word.sent)
        for number in word.gone:
            self._queue_pairs.pop(number, None)
            self._sent.pop(number, None)
        self._path_changes += word.paths
        if word.migrated:
            self.on_migrated(word.migrated)
        return {name: total for name, total in word.counters.items() if name not in STATES}

    async def _live(self) -> None:
        try:
            await super()._live()
        finally:
            self._queue_pairs.clear()
            self._sent.clear()
            self.changes += 1

    async def _know_sources(self) -> None:
        """Keep it told of the GIDs that there are."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look_for_sources()

    async def _look_for_sources(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # a device that goes while it is read
            found: list[VerbsSource] = await asyncio.to_thread(sources, self._nics)
            if self._by_lids:
                found += await asyncio.to_thread(lid_sources)
            self._want(msgspec.structs.replace(self._wanted, sources=found))
