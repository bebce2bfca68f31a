"""Address handles and send queues over a stand-in for pyverbs: what is kept, what is tried again, what is started anew."""

from types import SimpleNamespace
from typing import Any

import pytest

from cwdp.rdma import handles, udqueues, verbs
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.handles import RESOLVE_AGAIN_NS, AddressHandles
from cwdp.rdma.sport import flow_label_to_sport
from cwdp.rdma.udqueues import SEND_SLOTS, QueuePort, SendQueues

GID = gid_bytes("fd00:2::1")


class VerbsError(Exception):
    """As pyverbs raises it."""


class Fake:
    """Takes whatever it is made with, and keeps it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments, self.named = arguments, named
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Network:
    """The parts of pyverbs that are used, with what a test looks at or decides."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.silent = False
        self.handles: list[Fake] = []
        self.queues: list[Any] = []
        self.completions: list[SimpleNamespace] = []
        network = self

        class AH(Fake):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                if network.silent:
                    raise VerbsError("no answer")
                network.handles.append(self)

        class QP(Fake):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                self.qp_num = 17 + len(network.queues)
                self.posted: list[int] = []
                self.restarts = 0
                network.queues.append(self)

            def post_send(self, request: Any) -> None:
                self.posted.append(request.arguments[0])

            def modify(self, *_: Any) -> None:
                self.restarts += 1

            def to_rts(self, attributes: Any) -> None:
                assert attributes.qkey == udqueues.QKEY

        class CQ(Fake):
            def poll(self, _: int) -> tuple[int, list[SimpleNamespace]]:
                found, network.completions = network.completions, []
                return len(found), found

        class MR(Fake):
            buf, lkey = 4096, 1

            def write(self, data: bytes, length: int, _: int) -> None:
                assert length == len(data)

        class SendWR(Fake):
            def set_wr_ud(self, *destination: Any) -> None:
                self.destination = destination

        enums = SimpleNamespace(IBV_QPT_UD=4, IBV_QPS_RESET=0, IBV_QP_STATE=1, IBV_ACCESS_LOCAL_WRITE=1)
        self.modules = {
            "addr": SimpleNamespace(AH=AH, AHAttr=Fake, GlobalRoute=Fake, GID=Fake),
            "cq": SimpleNamespace(CQ=CQ),
            "enums": enums,
            "mr": SimpleNamespace(MR=MR),
            "pyverbs_error": SimpleNamespace(PyverbsError=VerbsError),
            "qp": SimpleNamespace(QP=QP, QPAttr=Fake, QPCap=Fake, QPInitAttr=Fake),
            "wr": SimpleNamespace(SGE=Fake, SendWR=SendWR),
        }

    def complete(self, slot: int, status: int = 0) -> None:
        self.completions.append(SimpleNamespace(wr_id=slot, status=status))


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    monkeypatch.setattr(verbs, "load", made.modules.__getitem__)
    return made


@pytest.fixture
def kept(network: Network) -> AddressHandles:
    return AddressHandles(Fake(), 1, 3, lambda: network.now_ns)


def test_a_handle_has_the_flow_label_of_its_port_and_is_kept(network: Network, kept: AddressHandles) -> None:
    handle = kept.get(GID, 50_001)
    assert kept.get(GID, 50_001) is handle
    assert len(network.handles) == 1
    route = network.handles[0].named["attr"].named["gr"].named
    assert flow_label_to_sport(route["flow_label"]) == 50_001
    assert route["sgid_index"] == 3


def test_a_destination_that_does_not_answer_is_tried_again_later(
    network: Network, kept: AddressHandles
) -> None:
    network.silent = True
    assert kept.get(GID, 50_001) is None
    network.silent = False
    assert kept.get(GID, 50_002) is None
    network.now_ns += RESOLVE_AGAIN_NS
    assert kept.get(GID, 50_001) is not None


def test_a_suspected_destination_is_resolved_again_once_in_a_while(
    network: Network, kept: AddressHandles
) -> None:
    kept.get(GID, 50_001)
    kept.suspect(GID)
    assert network.handles[0].closed
    kept.get(GID, 50_001)
    kept.suspect(GID)
    assert not network.handles[1].closed
    network.now_ns += RESOLVE_AGAIN_NS
    kept.suspect(GID)
    assert network.handles[1].closed


def test_no_more_handles_than_allowed(
    network: Network, kept: AddressHandles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "MAX_HANDLES", 2)
    for sport in (50_001, 50_002, 50_001, 50_003):
        kept.get(GID, sport)
    assert [handle.closed for handle in network.handles] == [False, True, False]
    kept.close()
    assert all(handle.closed for handle in network.handles)


@pytest.fixture
def queues(network: Network) -> SendQueues:
    return SendQueues(Fake(), Fake(), QueuePort(1), 2)


def test_no_more_is_under_way_than_there_is_room_for(network: Network, queues: SendQueues) -> None:
    assert all(queues.send(0, Fake(), 9, b"x") for _ in range(SEND_SLOTS))
    assert not queues.send(0, Fake(), 9, b"x")
    network.complete(5)
    assert queues.send(1, Fake(), 9, b"x")
    assert network.queues[1].posted == [5]


def test_a_queue_pair_that_failed_is_started_anew_and_loses_no_buffer(
    network: Network, queues: SendQueues
) -> None:
    for _ in range(SEND_SLOTS):
        queues.send(0, Fake(), 9, b"x")
    network.complete(3, status=2)
    assert all(queues.send(0, Fake(), 9, b"x") for _ in range(SEND_SLOTS))
    assert [queue.restarts for queue in network.queues] == [1, 0]


def test_a_completion_that_comes_after_the_restart_frees_nothing_twice(
    network: Network, queues: SendQueues
) -> None:
    queues.send(0, Fake(), 9, b"x")
    slot = network.queues[0].posted[0]
    network.complete(slot, status=2)
    network.complete(slot, status=5)
    sent = 0
    while queues.send(0, Fake(), 9, b"x"):
        sent += 1
    assert sent == SEND_SLOTS
