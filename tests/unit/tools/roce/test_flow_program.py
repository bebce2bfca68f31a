"""What a lab's agents send flows by: two ends that know nothing of each other make one flow."""

import time
from ipaddress import ip_address
from typing import Any

import pytest

from cwdp.agent.flows.protocol import ProgramFlow, ProgramOrder, ProgramTold
from cwdp.shared.bus.audits import Flow
from tools.roce.flow_program import WINDOW, generator_flow, told
from tools.roce.flows import MAX_QPN

ENDS = {
    True: {"local_addr": "10.1.0.1", "peer_addr": "10.2.0.1"},
    False: {"local_addr": "10.2.0.1", "peer_addr": "10.1.0.1"},
}
LARGEST = 2**20
QUEUE_BYTES, FRAME_BYTES = 256 * 1024, 4_096 + 76
S = 1_000_000_000


def end(*, sends: bool, number: int = 7, sport: int = 50_123) -> ProgramFlow:
    return ProgramFlow(id=number, nic="nic0", sends=sends, sport=sport, **ENDS[sends])


def order(number: int = 1, cap_bps: int = 0) -> ProgramOrder:
    return ProgramOrder(number=number, begin_s=0.0, begin_at_ns=0, lasts_s=1.0, cap_bps=cap_bps, flows=[])


@pytest.mark.parametrize("number", [1, 7, LARGEST])
@pytest.mark.parametrize("of_round", [1, 2**53])
def test_both_ends_make_the_same_flow(number: int, of_round: int) -> None:
    asked = order(of_round, cap_bps=5_000)
    made = [generator_flow(end(sends=sends, number=number), asked, 4_096) for sends in (True, False)]
    assert made[0] == made[1].__class__(
        **{**vars(made[1]), "source": made[0].source, "target": made[0].target}
    )
    for one in made:
        sender, receiver = sorted((one.source, one.target), key=lambda endpoint: endpoint.address)
        assert (sender.address, receiver.address) == (ip_address("10.1.0.1"), ip_address("10.2.0.1"))
        assert one.source is sender
        assert one.remote_qpn <= MAX_QPN
        assert 49_152 <= one.ack_sport <= 65_535
    assert made[0].rate_bps == 5_000


def test_flows_have_queue_pairs_of_their_own() -> None:
    flows = [generator_flow(end(sends=True, number=number), order(), 4_096) for number in range(1, 65)]
    numbers = [number for flow in flows for number in (flow.qpn, flow.remote_qpn)]
    assert len(set(numbers)) == len(numbers)
    assert len({flow.ack_sport for flow in flows}) > 60
    assert all(flow.rate_bps is None for flow in flows)


def test_the_next_round_has_other_queue_pairs() -> None:
    rounds = [generator_flow(end(sends=True), order(number), 4_096) for number in range(1, 201)]
    assert len({flow.qpn for flow in rounds}) == len(rounds)


def test_numbers_are_those_of_orders() -> None:
    assert str(LARGEST) in repr(Flow.__annotations__["id"])


def test_two_windows_fit_a_queue_of_the_lab() -> None:
    assert 2 * WINDOW * FRAME_BYTES <= QUEUE_BYTES


def result(**sent: Any) -> dict[str, Any]:
    return {
        "send": [{"id": 7, "acked_bytes": 1_000, "first_ns": 10 * S, "last_ns": 14 * S, **sent}],
        "receive": [],
    }


@pytest.mark.parametrize(
    ("sent", "took_s"),
    [({}, 4.0), ({"last_ns": 12 * S}, 3.0)],
    ids=["to the last acknowledgement", "that was cut off, to the end"],
)
def test_the_time_that_it_took(sent: dict[str, Any], took_s: float) -> None:
    flows = [end(sends=True), end(sends=False, number=8)]
    assert told(flows, result(**sent), until_ns=13 * S) == [
        ProgramTold(id=7, carried_bytes=1_000, took_s=took_s)
    ]


def test_a_flow_of_which_nothing_arrives() -> None:
    [one] = told([end(sends=True)], result(acked_bytes=0, last_ns=0), until_ns=time.monotonic_ns())
    assert (one.carried_bytes, one.trouble) == (0, "")
    assert one.took_s > 0
