"""Uprobes on Debian's libibverbs and kernel: what is seen of real queue pairs is what the kernel lists."""

from typing import Any

import pytest

from cwdp.agent.uprobes.probes.records import QP_CHANGED, QP_DESTROYED
from tools.rdma.guest import UPROBES
from tools.rdma.scenarios.uprobes import TRANSFER

Report = dict[str, Any]
RTR = 2


@pytest.fixture
def uprobes(report: Report) -> Report:
    found: Report = report[UPROBES]
    assert "error" not in found, found["error"]
    assert found["trouble"] == ""
    return found


def test_each_queue_pair_that_is_listed_was_seen_with_its_program_and_peer(uprobes: Report) -> None:
    listed = {(qp["device"], qp["lqpn"], qp["rqpn"], qp["pid"]) for qp in uprobes["listed"]}
    assert len(listed) == 2 * TRANSFER.queue_pairs
    connected = [qp for qp in uprobes["seen"] if qp["kind"] == QP_CHANGED and qp["state"] == RTR]
    assert sorted((qp["device"], qp["qpn"], qp["dest_qpn"], qp["pid"]) for qp in connected) == sorted(listed)
    assert all(qp["dgid"].startswith("00000000000000000000ffff") for qp in connected)


def test_each_was_seen_to_be_destroyed(uprobes: Report) -> None:
    listed = {(qp["device"], qp["lqpn"], qp["pid"]) for qp in uprobes["listed"]}
    gone = {(qp["device"], qp["qpn"], qp["pid"]) for qp in uprobes["seen"] if qp["kind"] == QP_DESTROYED}
    assert gone == listed


def test_of_a_program_outside_nothing_was_seen(uprobes: Report) -> None:
    assert uprobes["unnamed"] == 0
    assert uprobes["counters"]["uprobes_records_lost"] == 0
