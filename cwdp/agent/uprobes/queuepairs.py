"""Queue pairs whose making was seen, as they are now. No I/O."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cwdp.agent.uprobes.orders import Owner
from cwdp.agent.uprobes.probes.records import QP_CREATED, QP_DESTROYED, QpSeen
from cwdp.agent.verbs.orders import VerbsQp, VerbsSource
from cwdp.agent.verbs.queuepairs import gid_address

MOST = 65_536
RESET = 0

_Name = tuple[str, int]
"""Device and QPN."""


@dataclass
class _Qp:
    number: int
    owner: Owner
    state: int = RESET
    port: int = 0
    gid_index: int = 0
    dgid: bytes = b""
    dest_qpn: int = 0


class SeenQueuePairs:
    """All of them, within bounds.

    Attributes:
        refused: how many there was no room for.
    """

    def __init__(self) -> None:
        self._qps: dict[_Name, _Qp] = {}
        self._nics: dict[tuple[str, int, int], str] = {}
        self._numbers = self.refused = 0

    def __len__(self) -> int:
        return len(self._qps)

    def know(self, sources: Iterable[VerbsSource]) -> None:
        """These GIDs are our NICs'."""
        self._nics = {(source.device, source.port, source.gid_index): source.nic for source in sources}

    def hear(self, seen: QpSeen, owner: Owner) -> None:
        """A queue pair was made, given another state, or destroyed."""
        name = seen.device, seen.qpn
        if seen.kind == QP_DESTROYED:
            self._qps.pop(name, None)
            return
        qp = self._qps.get(name)
        if qp is None or seen.kind == QP_CREATED or qp.owner != owner:
            if qp is None and len(self._qps) >= MOST:
                self.refused += 1
                return
            self._numbers += 1
            qp = self._qps[name] = _Qp(self._numbers, owner)
        qp.state = seen.state
        if seen.dgid is not None:
            qp.port, qp.gid_index, qp.dgid = seen.port, seen.gid_index, seen.dgid
        if seen.dest_qpn is not None:
            qp.dest_qpn = seen.dest_qpn
        if seen.state == RESET:
            qp.dgid = b""

    def bury(self, started: Callable[[int], int | None]) -> None:
        """Forget those of programs that have ended; `started` tells when a program was started, None where there is none."""
        now = {pid: started(pid) for pid in {qp.owner.pid for qp in self._qps.values()}}
        self._qps = {name: qp for name, qp in self._qps.items() if now[qp.owner.pid] == qp.owner.started}

    def told(self) -> list[VerbsQp]:
        """Those with a path from a NIC of ours."""
        return [
            VerbsQp(
                qp.number, qp.owner.pid, device, qpn, qp.state, nic, gid_address(qp.dgid), qp.dest_qpn,
                None, by_table=False, actuator="create_only", refused=0, told_job=qp.owner.told_job, is_seen=True,
            )
            for (device, qpn), qp in self._qps.items()
            if qp.dgid and (nic := self._nics.get((device, qp.port, qp.gid_index), ""))
        ]  # fmt: skip
