"""UD queue pairs in two roles, so that neither hinders the other: some send, one receives.

A queue pair that failed to send (its interface lost its route, say) falls into an error state and is started
anew under its own number. Since it holds no receive buffers, nothing else is lost by that.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cwdp.rdma import verbs
from cwdp.rdma.udwire import MESSAGE_BYTES

QKEY = 0x43574450
GRH_BYTES = 40
SEND_SLOTS = 256
RECEIVE_SLOTS = 512
RECEIVE_BYTES = GRH_BYTES + MESSAGE_BYTES


class QueuePort(NamedTuple):
    """A device's port, and where in its table the P_Key of its packets is."""

    number: int
    pkey_index: int = 0


class Arrived(NamedTuple):
    """A message with the 40 bytes before it, and when it was seen.

    Attributes:
        data: GRH_BYTES of GRH (IBTA 11.4.1.2), which are void where the message has none, and the message.
        slid: the LID that it came from, on InfiniBand.
    """

    seen_ns: int
    data: bytes
    slid: int


class _UdQueuePair:
    """One UD queue pair of either role, ready to send."""

    def __init__(self, pd: Any, port: QueuePort, cq: Any, *, sends: int, receives: int) -> None:
        self._enums = verbs.enums()
        self._qp_module = verbs.load("qp")
        self._port = port
        module = self._qp_module
        cap = module.QPCap(max_send_wr=sends, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1)
        init = module.QPInitAttr(qp_type=self._enums.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap)
        self.qp = module.QP(pd, init, self._attributes())

    def restart(self) -> None:
        """Take the queue pair through RESET back to RTS; what was posted on it is gone."""
        attributes = self._qp_module.QPAttr()
        attributes.qp_state = self._enums.IBV_QPS_RESET
        self.qp.modify(attributes, self._enums.IBV_QP_STATE)
        self.qp.to_rts(self._attributes())

    def _attributes(self) -> Any:
        attributes = self._qp_module.QPAttr(port_num=self._port.number)
        attributes.pkey_index = self._port.pkey_index
        attributes.qkey = QKEY
        return attributes


class SendQueues:
    """Queue pairs that send, with one pool of buffers.

    Args:
        context, pd: of pyverbs.
        port: the device's port.
        count: how many queue pairs.

    Raises:
        pyverbs.PyverbsError: the device refuses.
    """

    def __init__(self, context: Any, pd: Any, port: QueuePort, count: int) -> None:
        work = verbs.load("wr")
        enums = verbs.enums()
        self._failed = verbs.failure()
        self._memory = verbs.load("mr").MR(pd, SEND_SLOTS * MESSAGE_BYTES, enums.IBV_ACCESS_LOCAL_WRITE)
        self._cq = verbs.load("cq").CQ(context, SEND_SLOTS, None, None, 0)
        self._queues = [_UdQueuePair(pd, port, self._cq, sends=SEND_SLOTS, receives=1) for _ in range(count)]
        self._requests = [
            work.SendWR(slot, num_sge=1, sg=[_buffer(work, self._memory, slot, MESSAGE_BYTES)])
            for slot in range(SEND_SLOTS)
        ]
        self._free = list(range(SEND_SLOTS))
        self._posted_on: dict[int, int] = {}

    @property
    def qpns(self) -> list[int]:
        """The numbers of the queue pairs."""
        return [queue.qp.qp_num for queue in self._queues]

    def send(self, index: int, handle: Any, qpn: int, data: bytes) -> bool:
        """Send a message from one of the queue pairs; False where there is no room."""
        self._reap()
        if not self._free:
            return False
        slot = self._free.pop()
        self._memory.write(data, len(data), slot * MESSAGE_BYTES)
        self._requests[slot].set_wr_ud(handle, qpn, QKEY)
        try:
            self._queues[index].qp.post_send(self._requests[slot])
        except self._failed:
            self._free.append(slot)
            return False
        self._posted_on[slot] = index
        return True

    def _reap(self) -> None:
        """Take back the buffers of what was sent; start anew what failed."""
        failed = self._complete()
        for index in failed:
            self._queues[index].restart()
        if failed:
            self._complete()
            for slot in [slot for slot, index in self._posted_on.items() if index in failed]:
                self._give_back(slot)

    def _complete(self) -> set[int]:
        """Take in completions; returns the queue pairs that failed."""
        failed = set()
        for completion in self._cq.poll(SEND_SLOTS)[1]:
            index = self._give_back(completion.wr_id)
            if completion.status != 0 and index is not None:
                failed.add(index)
        return failed

    def _give_back(self, slot: int) -> int | None:
        """Free a buffer; returns the queue pair that it was posted on, None where it is free already."""
        index = self._posted_on.pop(slot, None)
        if index is not None:
            self._free.append(slot)
        return index


class ReceiveQueue:
    """The queue pair that receives.

    Args:
        context, pd: of pyverbs.
        port: the device's port.
        channel: the completion channel that tells of arrivals.
        clock: ns; read when arrivals are seen.

    Raises:
        pyverbs.PyverbsError: the device refuses.
    """

    def __init__(
        self, context: Any, pd: Any, port: QueuePort, channel: Any, clock: Callable[[], int]
    ) -> None:
        self._clock = clock
        work = verbs.load("wr")
        enums = verbs.enums()
        self._memory = verbs.load("mr").MR(pd, RECEIVE_SLOTS * RECEIVE_BYTES, enums.IBV_ACCESS_LOCAL_WRITE)
        self.cq = verbs.load("cq").CQ(context, RECEIVE_SLOTS, None, channel, 0)
        self._queue = _UdQueuePair(pd, port, self.cq, sends=1, receives=RECEIVE_SLOTS)
        self._requests = [
            work.RecvWR(slot, num_sge=1, sg=[_buffer(work, self._memory, slot, RECEIVE_BYTES)])
            for slot in range(RECEIVE_SLOTS)
        ]
        self._post_all()

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""
        number: int = self._queue.qp.qp_num
        return number

    def receive(self) -> Iterator[Arrived]:
        """What has arrived."""
        while True:
            count, completions = self.cq.poll(RECEIVE_SLOTS)
            seen_ns = self._clock()
            if any(completion.status != 0 for completion in completions):
                self._queue.restart()
                self._post_all()
                return
            for completion in completions:
                data = self._memory.read(completion.byte_len, completion.wr_id * RECEIVE_BYTES)
                yield Arrived(seen_ns, data, completion.slid)
                self._queue.qp.post_recv(self._requests[completion.wr_id])
            if count < RECEIVE_SLOTS:
                return

    def _post_all(self) -> None:
        for request in self._requests:
            self._queue.qp.post_recv(request)


def _buffer(work: Any, memory: Any, slot: int, size: int) -> Any:
    return work.SGE(memory.buf + slot * size, size, memory.lkey)
