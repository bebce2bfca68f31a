"""Which flow labels queue pairs leave with, and what programs see of it: nothing."""

import errno
from collections import Counter
from random import Random

import pytest
from shim_programs import HERE, LABEL, SOURCES, TABLE, Start, labels

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import UNCOUNTED, Hello, QpPath, QpState, Route, Source
from cwdp.rdma.sport import flow_label_to_sport, sport_to_flow_label
from tools.shim import Built, FakeAgent, Program
from tools.shim.program import AV, ERR, ERRNO_BEFORE, GID, INIT, RESET, RTR, RTS


@pytest.mark.parametrize("kind", ["rc", "uc"])
def test_queue_pairs_with_a_path_have_the_tables_label(start: Start, kind: str) -> None:
    program, _ = start()
    program.connect(kind=kind)
    assert labels(program) == [LABEL]


def test_those_without_have_none_even_where_one_is_named(start: Start) -> None:
    program, _ = start()
    place, _, _ = program.do("create 0 ud")
    program.do(f"modify {place} {INIT}")
    program.do(f"modify {place} {RTR} path={GID.hex()}")
    assert labels(program) == [0]


def test_the_programs_own_label_stays(start: Start) -> None:
    program, _ = start()
    program.connect(more="label=5")
    assert labels(program) == [5]


@pytest.mark.parametrize("sport", [49_152, 50_123, 65_535])
def test_a_port_of_the_programs_environment_comes_before_the_table(start: Start, sport: int) -> None:
    program, _ = start(environment={"CWDP_VERBS_SPORT": str(sport)})
    program.connect()
    (label,) = labels(program)
    assert (label > 0, flow_label_to_sport(label)) == (True, sport)


def test_it_needs_no_agent_and_is_refused_as_the_programs_own(built: Built) -> None:
    environment = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": "off", "CWDP_VERBS_SPORT": "50123"}
    with Program(built.linked, built, environment) as program:
        program.do("open fake_0")
        program.connect()
        (label,) = labels(program)
        assert flow_label_to_sport(label) == 50_123
        program.do("refuse 1")
        place, _, _ = program.do("create 0 rc")
        program.do(f"modify {place} {INIT}")
        failed, _ = program.do(f"modify {place} {RTR} path={GID.hex()}")
        assert failed
        assert [flow_label_to_sport(label) for label in labels(program)] == [50_123]


def test_it_leaves_a_label_that_the_program_has_chosen(start: Start) -> None:
    program, _ = start(environment={"CWDP_VERBS_SPORT": "50123"})
    program.connect(more="label=5")
    assert labels(program) == [5]


@pytest.mark.parametrize("said", ["", "0", "4791", "49151", "65536", "-1", "x", "9" * 40])
def test_what_is_no_port_counts_as_none(start: Start, said: str) -> None:
    program, _ = start(environment={"CWDP_VERBS_SPORT": said})
    program.connect()
    assert labels(program) == [LABEL]


def test_a_path_without_a_global_route_has_none(start: Start) -> None:
    program, _ = start()
    program.connect(more="local=1")
    assert labels(program) == [0]


def test_a_label_is_given_on_the_way_to_rtr_only(start: Start) -> None:
    program, _ = start()
    place, _ = program.connect(more="label=5")
    program.calls()
    program.do(f"modify {place} 4")
    program.do(f"modify {place} 4 path={GID.hex()}")
    assert [call.flow_label for call in program.calls() if call.mask & AV] == [0]


def test_it_is_that_of_source_and_destination(start: Start) -> None:
    random = Random(3)
    gids = [random.randbytes(16) for _ in range(6)]
    sources = [
        Source("fake_0", 1, 3, gids[0]), Source("fake_0", 1, 4, gids[1]), Source("fake_0", 2, 3, gids[2]),
        Source("fake_1", 1, 3, gids[1]),
    ]  # fmt: skip
    routes = [
        Route(src, dst, ((0xC000 + 16 * i + j, 1.0),))
        for i, src in enumerate(gids[:3])
        for j, dst in enumerate(gids[3:])
    ]
    program, _ = start(shimwire.pack(1, sources, routes))
    program.do("open fake_1")
    for context, more, src in [(0, "", 0), (0, "gid=4", 1), (0, "port=2", 2), (1, "", 1), (0, "gid=5", None)]:
        for j, dst in enumerate(gids[3:]):
            program.connect(context, gid=dst, more=more)
            assert labels(program) == [0 if src is None else sport_to_flow_label(0xC000 + 16 * src + j)]
    program.connect(gid=gids[0])
    assert labels(program) == [0]


@pytest.mark.parametrize("paths", [2, 3, 4, 7, 16])
def test_equal_shares_are_taken_one_after_the_other(start: Start, paths: int) -> None:
    shares = tuple((0xC001 + n, 1.0) for n in range(paths))
    program, _ = start(shimwire.pack(1, SOURCES, [Route(HERE, GID, shares)]))
    for rounds in (1, 1, 5):
        program.do(f"many {rounds * paths} 0 {GID.hex()}")
        assert set(Counter(labels(program)).values()) == {rounds}


@pytest.mark.parametrize("processes", [1, 4])
def test_queue_pairs_are_spread_by_shares(start: Start, processes: int) -> None:
    shares = ((0xC001, 0.5), (0xC002, 0.25), (0xC003, 0.25))
    table = shimwire.pack(1, SOURCES, [Route(HERE, GID, shares)])
    found: Counter[int] = Counter()
    for _ in range(processes):
        program, _ = start(table)
        program.do(f"many {64 // processes} 0 {GID.hex()}")
        found.update(labels(program))
    assert found.keys() == {1, 2, 3}
    assert [found[label] for label in (1, 2, 3)] == pytest.approx([32, 16, 16], abs=2 * processes)


def test_first_queue_pairs_of_many_processes_are_spread(start: Start) -> None:
    shares = tuple((0xC001 + n, 1.0) for n in range(4))
    table = shimwire.pack(1, SOURCES, [Route(HERE, GID, shares)])
    found: Counter[int] = Counter()
    for _ in range(16):
        program, _ = start(table)
        program.connect()
        found.update(labels(program))
        program.end()
    assert len(found) == 4
    assert max(found.values()) <= 8


def test_routes_begin_elsewhere_each(start: Start) -> None:
    shares = tuple((0xC001 + n, 1.0) for n in range(4))
    gids = [bytes([n]) * 16 for n in range(32)]
    program, _ = start(shimwire.pack(1, SOURCES, [Route(HERE, gid, shares) for gid in gids]))
    for gid in gids:
        program.connect(gid=gid)
    assert min(Counter(labels(program)).values()) >= 2


def test_a_newer_table_is_taken(start: Start) -> None:
    program, peer = start()
    peer.give(shimwire.pack(2, SOURCES, [Route(HERE, GID, ((0xC777, 1.0),))]))
    peer.settle()
    program.connect()
    assert labels(program) == [sport_to_flow_label(0xC777)]


def test_a_route_without_choices_gives_none(start: Start) -> None:
    program, _ = start(shimwire.pack(1, SOURCES, [Route(HERE, GID, ())]))
    program.connect()
    assert labels(program) == [0]


def test_a_refused_label_is_done_without_and_never_tried_again(start: Start, agent: FakeAgent) -> None:
    program, peer = start()
    program.do("refuse 1")
    place, qpn = program.connect()
    assert labels(program) == [LABEL, 0]
    assert program.do(f"query {place}") == [0, RTS, RTS, 0]
    told = peer.await_one(QpPath)
    assert (told.qpn, told.flow_label, told.by_table) == (qpn, 0, 0)
    program.connect()
    assert labels(program) == [0]
    peer.close()
    agent.accept()
    assert next(hello for hello in agent.peers[-1].heard if isinstance(hello, Hello)).refused == 1


def test_what_is_refused_with_either_label_is_the_programs_own_error(start: Start) -> None:
    program, _ = start()
    place, _, _ = program.do("create 0 rc")
    program.do(f"modify {place} {INIT}")
    program.do(f"fail {errno.EINVAL} 0 1")
    program.do(f"fail {errno.EHOSTUNREACH} 0 2")
    assert program.do(f"modify {place} {RTR} path={GID.hex()}") == [errno.EHOSTUNREACH] * 2
    assert labels(program) == [LABEL, 0]
    assert program.do(f"modify {place} {RTR} path={GID.hex()}") == [0, ERRNO_BEFORE]
    assert labels(program) == [LABEL]


@pytest.mark.parametrize("error", [errno.ETIMEDOUT, errno.ENOMEM, errno.EINTR])
def test_an_error_that_is_not_of_the_label_is_not_tried_twice(start: Start, error: int) -> None:
    program, _ = start()
    place, _, _ = program.do("create 0 rc")
    program.do(f"modify {place} {INIT}")
    program.do(f"fail {error}")
    assert program.do(f"modify {place} {RTR} path={GID.hex()}") == [error, error]
    assert labels(program) == [LABEL]


def test_a_call_in_the_wrong_state_fails_as_it_does(start: Start) -> None:
    program, _ = start()
    place, _, _ = program.do("create 0 rc")
    assert program.do(f"modify {place} {RTR} path={GID.hex()}") == [errno.EINVAL, errno.EINVAL]
    assert program.do("create 0 rc 5000")[::2] == [-1, errno.ENOMEM]


def test_the_agent_hears_of_paths_states_and_ends(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do("create 0 rc")
    program.connect(kind="ud")
    path, *more = peer.hear_all()
    assert isinstance(path, QpPath)
    assert path.count_place != UNCOUNTED
    assert path._replace(state=RTS, count_place=0) == QpPath(
        "fake_0", qpn, RTS, 1, 3, 0x77, LABEL, GID, 1, 0, 0
    )
    assert more in ([], [QpState("fake_0", qpn, RTS)])
    for state in (ERR, RESET):
        program.do(f"modify {place} {state}")
        assert peer.hear() == QpState("fake_0", qpn, state)
    program.do(f"modify {place} {INIT}")
    program.do(f"modify {place} {RTR} path={GID.hex()} label=9")
    path = peer.await_one(QpPath)
    assert (path.state, path.flow_label, path.by_table) == (RTR, 9, 0)
    program.do(f"destroy {place}")
    assert peer.hear() == QpState("fake_0", qpn, shimwire.GONE)


def test_the_end_of_one_it_never_heard_of_is_not_told(start: Start) -> None:
    program, peer = start()
    place, _, _ = program.do("create 0 rc")
    program.do(f"destroy {place}")
    assert peer.hear_all() == []


def test_a_closed_device_takes_its_queue_pairs_along(start: Start) -> None:
    program, peer = start()
    qpns = {program.connect()[1] for _ in range(3)}
    peer.hear_all()
    program.do("close 0")
    gone = [message for message in peer.hear_all() if isinstance(message, QpState)]
    assert {message.qpn for message in gone if message.state == shimwire.GONE} == qpns
    assert peer.move("fake_0", min(qpns), 0xC111).error == errno.ENOENT


def test_a_new_agent_is_told_all_again(start: Start, agent: FakeAgent) -> None:
    program, peer = start()
    pairs = [program.connect() for _ in range(5)]
    program.do(f"destroy {pairs[0][0]}")
    peer.hear_all()
    peer.close()
    peer = agent.accept()
    told = peer.hear_all()
    assert {
        (message.qpn, message.state, message.flow_label) for message in told if isinstance(message, QpPath)
    } == {(qpn, RTS, LABEL) for _, qpn in pairs[1:]}
    assert len(told) == 4
    peer.give(TABLE)
    peer.settle()
    program.calls()
    program.connect()
    assert labels(program) == [LABEL]
