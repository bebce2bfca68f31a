"""Which LIDs queue pairs leave by over a fake InfiniBand: both ends' of the same number, or the program's own."""

import errno
from collections import Counter

import pytest
from shim_programs import TABLE, Start

from cwdp.rdma import shimwire
from cwdp.rdma.ib.lid import LID_MAX, dlids, lid_gid, point
from cwdp.rdma.shimwire import ACTUATORS, Hello, QpPath, Route
from tools.shim import FakeAgent, Program
from tools.shim.agent import Peer
from tools.shim.program import ERRNO_BEFORE, GID, INIT, RTR, RTS

HERE, THERE = (16, 2), (32, 2)
EQUAL = (1.0,) * 4


def lid_table(
    here: tuple[int, int] = HERE, there: tuple[int, int] = THERE, shares: tuple[float, ...] = EQUAL
) -> bytes:
    paths = tuple(zip(dlids(here, there), shares, strict=False))
    return shimwire.pack(1, [], [Route(lid_gid(here[0]), lid_gid(there[0]), paths, there[1])])


def only(dlid: int, lmc: int = 2) -> bytes:
    return shimwire.pack(1, [], [Route(lid_gid(16), lid_gid(32), ((dlid, 1.0),), lmc)])


def begin(
    start: Start, table: bytes | None, lids: tuple[int, int] = HERE, more: dict[str, str] | None = None
) -> tuple[Program, Peer]:
    environment = {"FAKE_LID": str(lids[0]), "FAKE_LMC": str(lids[1])} | (more or {})
    program, peer = start(table, device="ib_0", environment=environment)
    return program, peer


def connect(program: Program, dlid: int, more: str = "local=1", to: int = 0x77) -> tuple[int, int]:
    return program.connect(more=f"dlid={dlid} to={to} {more}")


def paths(program: Program) -> list[tuple[int, int]]:
    """DLID and source path bits of the calls to RTR that reached the provider."""
    calls = program.calls()
    return [(call.dlid, call.path_bits) for call in calls if call.what == "modify_qp" and call.state == RTR]


@pytest.mark.parametrize("more", ["local=1", ""])
@pytest.mark.parametrize(("dlid", "bits"), [(32, 0), (33, 1), (35, 3)])
def test_a_queue_pair_takes_the_path_of_the_table_global_or_not(
    start: Start, more: str, dlid: int, bits: int
) -> None:
    program, _ = begin(start, only(dlid))
    connect(program, 32, more)
    assert paths(program) == [(dlid, bits)]


@pytest.mark.parametrize(
    ("dlid", "more"), [(33, ""), (35, ""), (32, "bits=1"), (48, ""), (0, ""), (0xC001, "")]
)
def test_what_the_program_has_chosen_or_nobody_knows_stays(start: Start, dlid: int, more: str) -> None:
    program, _ = begin(start, only(34))
    connect(program, dlid, f"local=1 {more}")
    assert paths(program) == [(dlid, 1 if more else 0)]


@pytest.mark.parametrize(
    ("table", "lids"),
    [
        (only(36), HERE),  # beyond the destination's
        (only(31), HERE),
        (only(33, lmc=0), HERE),
        (only(35), (16, 1)),  # beyond the source's
        (only(33), (16, 0)),
        (only(33, lmc=8), HERE),
        (only(LID_MAX + 1), HERE),
        (only(0x1_0021), HERE),
        (only(0), HERE),
        (TABLE, HERE),
        (shimwire.pack(1, [], []), HERE),
        (None, HERE),
    ],
)
def test_nothing_beyond_the_lids_of_both_ends_is_taken(
    start: Start, table: bytes | None, lids: tuple[int, int]
) -> None:
    program, _ = begin(start, table, lids)
    connect(program, 32)
    assert paths(program) == [(32, 0)]


def test_a_port_whose_lids_are_others_than_the_tables_is_left_alone(start: Start) -> None:
    program, _ = begin(start, lid_table(), (64, 2))
    connect(program, 32)
    assert paths(program) == [(32, 0)]


def test_ud_and_ethernet_are_left_alone(start: Start) -> None:
    program, _ = begin(start, only(33))
    place, _, _ = program.do("create 0 ud")
    program.do(f"modify {place} {INIT}")
    program.do(f"modify {place} {RTR} path={GID.hex()} dlid=32 local=1")
    program.do("open fake_1")
    program.connect(1, more="dlid=32 local=1")
    assert paths(program) == [(32, 0), (32, 0)]


@pytest.mark.parametrize("shares", [EQUAL, (1.0, 0.5, 0.25, 0.25)])
def test_both_ends_take_the_path_of_the_same_number_without_asking(
    start: Start, shares: tuple[float, ...]
) -> None:
    """Each validates the other's source LID (IBTA 9.6.1.5)."""
    a, _ = begin(start, lid_table(shares=shares))
    b, _ = begin(start, lid_table(THERE, HERE, shares), THERE)
    found: list[tuple[int, int]] = []
    for number in range(64):
        a_place, a_qpn, _ = a.do("create 0 rc")
        if number % 3 == 0:
            b.do("create 0 rc")  # numbers of the two ends need not go together
        b_place, b_qpn, _ = b.do("create 0 rc")
        for program, place, dlid, to in ((a, a_place, 32, b_qpn), (b, b_place, 16, a_qpn)):
            program.do(f"modify {place} {INIT}")
            program.do(f"modify {place} {RTR} path={GID.hex()} dlid={dlid} to={to} local=1")
        ((a_dlid, a_bits),), ((b_dlid, b_bits),) = paths(a), paths(b)
        assert (a_dlid, b_dlid) == (32 + b_bits, 16 + a_bits)
        if shares == EQUAL:
            assert a_bits == point((16, a_qpn), (32, b_qpn)) >> 30
        found.append((a_dlid, a_bits))
    counted = Counter(bits for _, bits in found)
    wanted = [64 * share / sum(shares) for share in shares]
    assert [counted[bits] for bits in range(4)] == pytest.approx(wanted, abs=3)


def test_consecutive_queue_pairs_are_spread_evenly(start: Start) -> None:
    program, _ = begin(start, lid_table())
    for _ in range(16):
        connect(program, 32)
    assert max(Counter(paths(program)).values()) <= 5


def test_the_agent_hears_of_ends_path_and_who_gave_it(start: Start) -> None:
    program, peer = begin(start, only(34))
    _, qpn = connect(program, 32)
    told = peer.await_one(QpPath)
    assert (told.device, told.qpn, told.port, told.dest_qpn) == ("ib_0", qpn, 1, 0x77)
    assert (told.lid, told.dlid, told.src_path_bits, told.by_table) == (16, 34, 2, 1)
    assert (told.path, ACTUATORS[told.actuator]) == (34, "create_only")
    connect(program, 35, "local=1 bits=3")
    own = peer.await_one(QpPath, lambda path: path.qpn != qpn)
    assert (own.lid, own.dlid, own.src_path_bits, own.by_table) == (16, 35, 3, 0)


def test_of_ethernet_the_agent_hears_no_lids(start: Start) -> None:
    program, peer = start()
    program.connect(more="dlid=7")
    told = peer.await_one(QpPath)
    assert (told.lid, told.dlid, told.src_path_bits) == (0, 0, 0)


def test_a_device_with_migration_says_so(start: Start) -> None:
    program, peer = begin(start, None, more={"FAKE_APM": "1"})
    connect(program, 32)
    assert ACTUATORS[peer.await_one(QpPath).actuator] == "apm"


def test_refused_lids_are_done_without_and_never_tried_again(start: Start, agent: FakeAgent) -> None:
    program, peer = begin(start, only(33))
    program.do("refuse 1")
    _, qpn = connect(program, 32)
    assert paths(program) == [(33, 1), (32, 0)]
    told = peer.await_one(QpPath)
    assert (told.qpn, told.dlid, told.src_path_bits, told.by_table) == (qpn, 32, 0, 0)
    connect(program, 32)
    assert paths(program) == [(32, 0)]
    peer.close()
    agent.accept()
    assert next(hello for hello in agent.peers[-1].heard if isinstance(hello, Hello)).refused == 1


@pytest.mark.parametrize("error", [errno.ETIMEDOUT, errno.ENOMEM])
def test_an_error_that_is_not_of_the_path_is_the_programs(start: Start, error: int) -> None:
    program, _ = begin(start, only(33))
    place, _, _ = program.do("create 0 rc")
    program.do(f"modify {place} {INIT}")
    program.do(f"fail {error}")
    line = f"modify {place} {RTR} path={GID.hex()} dlid=32 local=1"
    assert program.do(line) == [error, error]
    assert program.do(line) == [0, ERRNO_BEFORE]
    assert paths(program) == [(33, 1), (33, 1)]
    program.do(f"modify {place} {RTS}")
