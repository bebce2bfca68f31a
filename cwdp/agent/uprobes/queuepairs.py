"""Queue pairs whose making was seen, as they are now. No I/O.

What is seen was read from programs' memory, so it is theirs to say: none can say anything of another's.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cwdp.agent.uprobes.orders import Owner
from cwdp.agent.uprobes.probes.records import QP_CREATED, QP_DESTROYED, QpSeen
from cwdp.agent.verbs.orders import VerbsQp, VerbsSource
from cwdp.agent.verbs.queuepairs import gid_address

MOST, MOST_OF_A_PROGRAM = 65_536, 16_384
RESET = 0

_Name = tuple[Owner, str, int]
"""Whose it is, device and QPN."""


@dataclass
class _Qp:
    number: int
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
        self._of_program: Counter[Owner] = Counter()
        self._nics: dict[tuple[str, int, int], str] = {}
        self._numbers = self.refused = 0

    def __len__(self) -> int:
        return len(self._qps)

    def know(self, sources: Iterable[VerbsSource]) -> None:
        """These GIDs are our NICs'."""
        self._nics = {(source.device, source.port, source.gid_index): source.nic for source in sources}

    def hear(self, seen: QpSeen, owner: Owner) -> None:
        """A queue pair was made, given another state, or destroyed."""
        name = owner, seen.device, seen.qpn
        if seen.kind in (QP_CREATED, QP_DESTROYED) and self._qps.pop(name, None) is not None:
            self._of_program[owner] -= 1
        if seen.kind == QP_DESTROYED:
            return
        qp = self._qps.get(name)
        if qp is None:
            if len(self._qps) >= MOST or self._of_program[owner] >= MOST_OF_A_PROGRAM:
                self.refused += 1
                return
            self._numbers += 1
            self._of_program[owner] += 1
            qp = self._qps[name] = _Qp(self._numbers)
        qp.state = seen.state
        if seen.dgid is not None:
            qp.port, qp.gid_index, qp.dgid = seen.port, seen.gid_index, seen.dgid
        if seen.dest_qpn is not None:
            qp.dest_qpn = seen.dest_qpn
        if seen.state == RESET:
            qp.dgid = b""

    def bury(self, started: Callable[[int], int | None]) -> None:
        """Forget those of programs that have ended; `started` tells when a program was started, None where there is none."""
        alive = {owner for owner in self._of_program if started(owner.pid) == owner.started}
        self._qps = {name: qp for name, qp in self._qps.items() if name[0] in alive}
        self._of_program = Counter(name[0] for name in self._qps)

    def told(self) -> list[VerbsQp]:
        """Those with a path from a NIC of ours."""
        return [
            VerbsQp(
                qp.number, owner.pid, device, qpn, qp.state, nic, gid_address(qp.dgid), qp.dest_qpn,
                None, by_table=False, actuator="create_only", refused=0, told_job=owner.told_job, is_seen=True,
            )
            for (owner, device, qpn), qp in self._qps.items()
            if qp.dgid and (nic := self._nics.get((device, qp.port, qp.gid_index), ""))
        ]  # fmt: skip
