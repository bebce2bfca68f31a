"""What queue pairs are given to send: counted where a program posts by ibv_post_send, and told."""

import errno

import pytest
from shim_programs import Start

from cwdp.rdma.shimwire import COUNTS, UNCOUNTED, QpPath, Sent
from tools.shim import Built, FakeAgent, Program
from tools.shim.agent import Peer
from tools.shim.program import ERRNO_BEFORE, GID

WRITE, WRITE_WITH_IMM, SEND, SEND_WITH_IMM, READ, CAS, ADD, INVALIDATE, BIND, SEND_WITH_INV, TSO = range(11)
"""Of `enum ibv_wr_opcode`."""

PLACES = 8_192
"""Queue pairs of which a process keeps counts, at most."""


def place_of(peer: Peer, qpn: int) -> int:
    return peer.await_one(QpPath, lambda told: told.qpn == qpn).count_place


def counted(peer: Peer, place: int, octets: int) -> None:
    """Wait until a count is told.

    Raises:
        TimeoutError: it was not.
    """
    peer.await_one(Sent, lambda told: (place, octets) in told.counts)


def test_what_is_sent_is_counted_and_what_is_fetched_is_not(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    other, _ = program.connect()
    count = place_of(peer, qpn)
    for opcode in range(TSO):
        assert program.do(f"post {place} {opcode} 100 20") == [0, -1, ERRNO_BEFORE]
    assert program.do(f"post {place} {SEND} 1000 / 2000 / 4000") == [0, -1, ERRNO_BEFORE]
    assert program.do(f"post {other} {READ} 5") == [0, -1, ERRNO_BEFORE]
    counted(peer, count, 5 * 120 + 7000)
    program.do(f"post {place} {WRITE} 1")
    counted(peer, count, 5 * 120 + 7001)
    assert all(len(message.counts) == 1 for message in peer.heard if isinstance(message, Sent))


def test_what_is_refused_is_not_counted(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    count = place_of(peer, qpn)
    assert program.do(f"post {place} {SEND} 1 / !2 / 4") == [errno.ENOMEM, 1, ERRNO_BEFORE]
    assert program.do(f"post {place} {SEND} {'7 ' * 33}") == [errno.EINVAL, 0, ERRNO_BEFORE]
    assert program.do(f"post {place} {SEND} {'7 ' * 100}") == [errno.EINVAL, 0, ERRNO_BEFORE]
    program.do(f"post {place} {SEND} 8")
    counted(peer, count, 8)
    posts = [call for call in program.calls() if call.what == "post_send"]
    assert [(call.qpn, call.state, call.result) for call in posts] == [
        (qpn, 1, errno.ENOMEM), (qpn, 0, errno.EINVAL), (qpn, 0, errno.EINVAL), (qpn, 1, 0),
    ]  # fmt: skip


def test_a_new_queue_pair_begins_anew_and_one_without_a_connection_has_no_count(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    count = place_of(peer, qpn)
    program.do(f"post {place} {SEND} 8")
    counted(peer, count, 8)
    program.do(f"destroy {place}")
    place, again = program.connect()
    assert again == qpn
    count = place_of(peer, qpn)
    program.do(f"post {place} {SEND} 3")
    counted(peer, count, 3)
    program.connect(kind="ud")
    program.do(f"post {place + 1} {SEND} 3")
    assert not any(isinstance(message, Sent) for message in peer.hear_all(1.5))


def test_a_new_agent_hears_all_counts(start: Start, agent: FakeAgent) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do(f"post {place} {SEND} 8")
    counted(peer, place_of(peer, qpn), 8)
    peer.close()
    peer = agent.accept()
    counted(peer, place_of(peer, qpn), 8)


@pytest.mark.parametrize("more", [{"CWDP_VERBS_COUNT": "off"}, {"CWDP_VERBS": "off"}])
def test_switched_off_nothing_is_counted(built: Built, agent: FakeAgent, more: dict[str, str]) -> None:
    environment = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(agent.path)} | more
    with Program(built.linked, built, environment) as program:
        program.do("open fake_0")
        place, _ = program.connect()
        assert program.do(f"post {place} {SEND} 8") == [0, -1, ERRNO_BEFORE]
        if "CWDP_VERBS" not in more:
            assert not any(isinstance(message, Sent) for message in agent.accept().hear_all(1.5))


def test_more_queue_pairs_than_are_counted_post_all_the_same(start: Start) -> None:
    program, peer = start()
    program.do("quiet")
    assert program.do(f"many {PLACES + 2_000} 0 {GID.hex()}")[0] == PLACES + 2_000
    for place in range(0, PLACES + 2_000, 100):
        assert program.do(f"post {place} {SEND} 8")[0] == 0
    told = [message for message in peer.hear_all(2) if isinstance(message, QpPath | Sent)]
    places = {message.count_place for message in told if isinstance(message, QpPath)}
    counts = [count for message in told if isinstance(message, Sent) for count in message.counts]
    assert UNCOUNTED in places
    assert len(places) > PLACES * 0.75
    assert COUNTS < len(counts) < (PLACES + 2_000) // 100
    assert {octets for _, octets in counts} == {8}


def test_a_child_counts_its_own(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    count = place_of(peer, qpn)
    program.do(f"fork post {place} {SEND} 100")
    assert program.answer() == ["fork", "0", "0"]
    program.do(f"post {place} {SEND} 8")
    counted(peer, count, 8)


def posted(program: Program) -> list[tuple[int, int, int]]:
    """What the plug-in for NCCL was told: queue pair, requests, bytes."""
    return [(call.qpn, call.mask, call.state) for call in program.calls() if call.what == "posted"]


def test_the_plug_in_for_nccl_is_told_of_each_post_once_it_is_loaded(start: Start) -> None:
    program, _ = start()
    first, first_qpn = program.connect()
    program.do(f"post {first} {SEND} 1")
    assert program.do("load libcwdp_nccl.so")[0] == 0
    program.do(f"post {first} {SEND} 2")
    assert posted(program) == []
    second, second_qpn = program.connect()
    program.do(f"post {second} {WRITE} 100 20 / 4000 / 0")
    program.do(f"post {first} {READ} 5")
    program.do(f"post {second} {SEND} 1 / !2 / 4")
    assert posted(program) == [(second_qpn, 3, 4120), (first_qpn, 1, 0)]


@pytest.mark.parametrize("more", [{"CWDP_VERBS": "off"}, {"CWDP_VERBS_COUNT": "off"}])
def test_switched_off_the_plug_in_is_told_nothing(
    built: Built, agent: FakeAgent, more: dict[str, str]
) -> None:
    wanted = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(agent.path)} | more
    with Program(built.linked, built, wanted) as program:
        program.do("load libcwdp_nccl.so")
        program.do("open fake_0")
        place, _ = program.connect()
        assert program.do(f"post {place} {SEND} 8") == [0, -1, ERRNO_BEFORE]
        assert posted(program) == []
