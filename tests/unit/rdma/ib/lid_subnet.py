"""A subnet between fake providers of verbs: UD messages go to whom a LID and a queue pair's number name. No device was tried."""

from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cwdp.rdma import sysfs, udlink, verbs
from cwdp.rdma.ib.udlink import LidLink
from cwdp.rdma.udqueues import GRH_BYTES, QKEY

GARBAGE = b"\x45" * GRH_BYTES
"""Where the GRH of a message would be that has none: here it looks like an IPv4 header."""

HOP_NS = 1_000


class VerbsError(Exception):
    """As pyverbs raises it."""


class Made:
    """Takes whatever it is made with, and keeps it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments, self.named = arguments, named

    def close(self) -> None:
        """Nothing is held."""


class Memory(Made):
    """A region of memory, of the size that it is made with."""

    buf, lkey = 0, 1

    def __init__(self, pd: Any, size: int, access: int) -> None:
        super().__init__(pd, size, access)
        self.data = bytearray(size)

    def write(self, data: bytes, length: int, at: int = 0) -> None:
        self.data[at : at + length] = data

    def read(self, length: int, at: int) -> bytes:
        return bytes(self.data[at : at + length])


class CompletionQueue(Made):
    """Completions in order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.done: deque[SimpleNamespace] = deque()

    def poll(self, most: int) -> tuple[int, list[SimpleNamespace]]:
        found = [self.done.popleft() for _ in range(min(most, len(self.done)))]
        return len(found), found

    def req_notify(self) -> None:
        """Nothing is told."""

    def ack_events(self, _: int) -> None:
        """Nothing is told."""


class Subnet:
    """Ports with their LIDs, and what went over which path.

    Attributes:
        lids: first LID and LMC of each device's port.
        pkeys: of each, by index; the default one where it has no entry.
        log: source LID, destination LID, and P_Key index of what was sent.
        dead: LIDs that nothing reaches.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lids: dict[str, tuple[int, int]]) -> None:
        self.lids = dict(lids)
        self.pkeys: dict[str, dict[int, int]] = {}
        self.log: list[tuple[int, int, int]] = []
        self.dead: set[int] = set()
        self.now_ns = 1_000_000
        self.queues: dict[tuple[str, int], Any] = {}
        self._files = iter(range(1_000, 2_000))
        monkeypatch.setattr(verbs, "load", self._modules().__getitem__)
        monkeypatch.setattr(sysfs, "port_lids", lambda device, _: self.lids.get(device))
        monkeypatch.setattr(sysfs, "pkeys", lambda device, _: self.pkeys.get(device, {0: 0xFFFF}))
        monkeypatch.setattr(sysfs, "incarnation", lambda _: 1)
        monkeypatch.setattr(udlink, "_completion_channel", lambda _: (Made(), next(self._files)))
        monkeypatch.setattr(udlink.select, "poll", lambda: SimpleNamespace(register=_nothing, poll=_none))

    def link(self, device: str) -> LidLink:
        """The UD queue pairs of a device."""
        return LidLink(device, 1, self.clock)

    def clock(self) -> int:
        """One of all hosts; each reading takes 10 ns."""
        self.now_ns += 10
        return self.now_ns

    def carry(self, device: str, request: Any, pkey_index: int) -> None:
        """Hand a message over, if there is such a port and queue pair."""
        attributes = request.handle.named["attr"].named
        assert attributes["is_global"] == 0
        slid, dlid = self.lids[device][0] + attributes["src_path_bits"], attributes["dlid"]
        self.log.append((slid, dlid, pkey_index))
        self.now_ns += HOP_NS
        to = [name for name, (lid, lmc) in self.lids.items() if lid <= dlid < lid + (1 << lmc)]
        queue = self.queues.get((to[0], request.qpn)) if to and dlid not in self.dead else None
        if queue is None or not queue.receives:
            return
        slot, element = queue.receives.popleft()
        data = GARBAGE + request.data
        element.memory.write(data, len(data), element.offset)
        queue.cq.done.append(SimpleNamespace(wr_id=slot, status=0, byte_len=len(data), slid=slid))

    def _modules(self) -> dict[str, Any]:
        subnet = self

        class QueuePair(Made):
            numbers: ClassVar = iter(range(0x100, 0x10000))

            def __init__(self, pd: Any, init: Any, attributes: Any) -> None:
                super().__init__(pd, init, attributes)
                assert attributes.qkey == QKEY
                self.device = pd.arguments[0].named["name"]
                self.qp_num = next(self.numbers)
                self.cq = init.named["rcq"]
                self.pkey_index = attributes.pkey_index
                self.receives: deque[tuple[int, Any]] = deque()
                subnet.queues[self.device, self.qp_num] = self

            def post_recv(self, request: Any) -> None:
                self.receives.append((request.arguments[0], request.named["sg"][0]))

            def post_send(self, request: Any) -> None:
                subnet.carry(self.device, request, self.pkey_index)
                self.cq.done.append(SimpleNamespace(wr_id=request.arguments[0], status=0))

        class SendRequest(Made):
            def set_wr_ud(self, handle: Any, qpn: int, qkey: int) -> None:
                assert qkey == QKEY
                element = self.named["sg"][0]
                self.handle, self.qpn = handle, qpn
                self.data = element.memory.read(element.size, element.offset)

        class Element(Made):
            def __init__(self, at: int, size: int, key: int) -> None:
                super().__init__(at, size, key)
                self.offset, self.size, self.memory = at, size, regions[key]

        regions: dict[int, Memory] = {}

        class Region(Memory):
            def __init__(self, pd: Any, size: int, access: int) -> None:
                super().__init__(pd, size, access)
                self.lkey = len(regions) + 1
                regions[self.lkey] = self

        enums = SimpleNamespace(IBV_QPT_UD=4, IBV_QPS_RESET=0, IBV_QP_STATE=1, IBV_ACCESS_LOCAL_WRITE=1)
        return {
            "addr": SimpleNamespace(AH=Made, AHAttr=Made),
            "cq": SimpleNamespace(CQ=CompletionQueue),
            "device": SimpleNamespace(Context=Made),
            "enums": enums,
            "mr": SimpleNamespace(MR=Region),
            "pd": SimpleNamespace(PD=Made),
            "pyverbs_error": SimpleNamespace(PyverbsError=VerbsError),
            "qp": SimpleNamespace(QP=QueuePair, QPAttr=_Attributes, QPCap=Made, QPInitAttr=Made),
            "wr": SimpleNamespace(SGE=Element, SendWR=SendRequest, RecvWR=Made),
        }


class _Attributes:
    def __init__(self, port_num: int) -> None:
        self.port_num, self.pkey_index, self.qkey = port_num, 0, 0


def _nothing(*_: Any) -> None:
    """A descriptor is watched."""


def _none(_: int) -> list[tuple[int, int]]:
    return []
