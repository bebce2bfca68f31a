"""What the manager makes of queue pairs that the verbs shim tells of: which is whose, what moves it, and what is refused."""

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import ACTUATORS, Actuator, NicQueuePairs, QpReport, SteerQp
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import EGRESS, QP_ROW, VERBS_BY_TABLE, VERBS_ROW, packed_address
from cwdp.shared.verbs import NicVerbs, Program, VerbsReport
from manager.api.overrides_http import require_steerable, shown_with
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.overrides.steering import SteerOverride
from manager.placement.flows import QpName
from manager.queue_pairs.verbs import VerbsStore
from manager.state import FleetState
from manager.view import qp_views, steer_views

THERE = "10.0.0.2"


def rows(*actuators: Actuator) -> bytes:
    """A queue pair for each, of QPNs from 5 on."""
    made = np.zeros(len(actuators), VERBS_ROW)
    made["addr"] = np.frombuffer(packed_address(THERE), np.uint8)
    made["qpn"], made["lqpn"], made["pid"] = 5 + np.arange(len(made)), 70 + np.arange(len(made)), 40
    made["sport"], made["flags"] = 50_001, VERBS_BY_TABLE
    made["actuator"] = [ACTUATORS.index(actuator) for actuator in actuators]
    return row_bytes(made)


def report(
    *actuators: Actuator, host: str = "a", number: int = 1, part: int = 0, parts: int = 1
) -> VerbsReport:
    nics = [NicVerbs(nic="eth0", rows=rows(*actuators))]
    programs = [Program(pid=40, name="python3", cgroup="/pod1", job="slurm:7")]
    return VerbsReport(host=host, nics=nics, programs=programs, number=number, part=part, parts=parts)


def name(qpn: int, host: str = "a") -> QpName:
    return QpName(host, "eth0", THERE, qpn)


def test_queue_pairs_are_known_by_their_far_end_with_their_program() -> None:
    store = VerbsStore()
    store.hear(report("mlx5dv", "create_only", "sqd"), {"eth0"}, 0.0)
    found = store.of(name(5))
    assert found is not None
    assert (found.actuator, found.pid, found.program, found.cgroup, found.lqpn) == (
        "mlx5dv",
        40,
        "python3",
        "/pod1",
        70,
    )
    assert (store.of(name(9)), store.of(name(5, "b")), store.of(name(5)._replace(dst_addr="?"))) == (
        None,
        None,
        None,
    )
    assert (store.create_only, store.drained) == ({name(6)}, {name(7)})
    assert store.count() == 3


def test_a_report_in_parts_counts_when_it_is_whole_and_a_new_one_replaces_it() -> None:
    store = VerbsStore()
    first = report("bnxt", number=1, part=0, parts=2)
    store.hear(first, {"eth0"}, 0.0)
    assert store.count() == 0
    store.hear(report("bnxt", number=2, part=1, parts=2), {"eth0"}, 0.0)
    store.hear(report(number=2, part=0, parts=2), {"eth0"}, 0.0)
    assert store.count() == 1
    store.hear(report(number=3), {"eth0"}, 0.0)
    assert store.count() == 0
    store.hear(report("bnxt", number=4), {"eth0"}, 0.0)
    store.keep_only(["b"])
    assert store.count() == 0


def test_what_is_not_sane_is_left_out() -> None:
    store = VerbsStore()
    store.hear(report("bnxt"), {"eth1"}, 0.0)
    store.hear(replace(report("bnxt"), nics=[NicVerbs(nic="eth0", rows=b"x")]), {"eth0"}, 0.0)
    odd = np.zeros(1, VERBS_ROW)
    odd["actuator"] = 99
    store.hear(replace(report(), nics=[NicVerbs(nic="eth0", rows=row_bytes(odd))]), {"eth0"}, 0.0)
    assert (store.count(), store.not_sane) == (0, 2)


def test_what_programs_call_themselves_does_nothing_to_a_terminal() -> None:
    store = VerbsStore()
    told = Program(pid=40, name="a\x1b[2J", cgroup="/x\n", job="ray:\x9b1m" + "y" * 1_000)
    store.hear(replace(report("mlx5dv"), programs=[told]), {"eth0"}, 0.0)
    found = store.of(name(5))
    assert found is not None
    assert (found.program, found.cgroup, found.job) == ("a?[2J", "/x?", "ray:?1m" + "y" * 57)


@pytest.fixture
def state() -> FleetState:
    made = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    made.members.hear(replace(hello("a"), nics=[nic("eth0", ipv4="10.0.0.1", ipv6=None)], verbs=True), 10.0)
    return made


def test_rows_show_what_moves_a_queue_pair_and_whose_it_is(state: FleetState) -> None:
    state.traffic.hear_verbs(report("mlx5dv"), 0.0)
    sent = np.zeros(3, QP_ROW)
    sent["addr"] = np.frombuffer(packed_address(THERE), np.uint8)
    sent["qpn"], sent["direction"] = [5, 6, 5], [EGRESS, EGRESS, 1]
    state.traffic.hear_queue_pairs(
        QpReport(host="a", local_ns=1, nics=[NicQueuePairs(nic="eth0", rows=row_bytes(sent))]), 10.0
    )
    told = {
        (row["qpn"], row["direction"]): (row["actuator"], row["process"])
        for row in qp_views.queue_pairs(state, 10.0)["queue_pairs"]
    }
    assert told == {
        (5, "egress"): (
            "mlx5dv",
            {"pid": 40, "name": "python3", "cgroup": "/pod1", "job": "slurm:7", "lqpn": 70},
        ),
        (6, "egress"): ("tc", None),
        (5, "ingress"): (None, None),
    }


def override(qpn: int) -> SteerOverride:
    return SteerOverride(host="a", nic="eth0", dst=THERE, qpn=qpn, sport=50_001)


def test_only_what_can_be_moved_can_be_steered_by_hand(state: FleetState) -> None:
    ud = replace(nic("eth0", ipv4="10.0.0.1", ipv6=None), transport="ud")
    state.members.hear(replace(hello("a"), nics=[ud], verbs=True), 11.0)
    state.traffic.hear_verbs(report("mlx5dv", "create_only", "sqd", "apm"), 0.0)
    require_steerable(state, override(5))
    require_steerable(state, override(7))
    assert [shown_with(state, override(qpn)) for qpn in (5, 7, 99)] == [
        {"actuator": how} for how in ("mlx5dv", "sqd", "tc")
    ]
    with pytest.raises(ConfigError, match="cannot move a queue pair once it is connected"):
        require_steerable(state, override(6))
    with pytest.raises(ConfigError, match="of its other end that it can migrate, and both ends must"):
        require_steerable(state, override(8))
    for qpn in (5, 99):
        with pytest.raises(ConfigError, match="54 is no source port of a path, but a LID"):
            require_steerable(state, replace(override(qpn), sport=54))
    with pytest.raises(ConfigError, match="no dataplane"):
        require_steerable(state, override(99))
    state.members.hear(replace(hello("a"), nics=[ud], verbs=True, observe_only=True), 12.0)
    with pytest.raises(ConfigError, match="only observes"):
        require_steerable(state, override(5))


def test_what_is_steered_is_listed_whatever_moves_it(state: FleetState) -> None:
    state.traffic.hear_verbs(report("mlx5dv", "sqd"), 0.0)
    fields = {"host": "a", "nic": "eth0", "dst": THERE, "sport": 50_000}
    state.steering.set(SteerOverride(qpn=6, **fields))
    state.planner.planned["a"] = [
        SteerQp(nic="eth0", dst_addr=THERE, qpn=qpn, sport=51_000, backup_sport=51_001) for qpn in (9, 6, 5)
    ]
    listed = steer_views.steered(state, "a")["steered"]
    assert [
        (row["qpn"], row["sport"], row["backup_sport"], row["set_by"], row["actuator"]) for row in listed
    ] == [
        (5, 51_000, 51_001, "planner", "mlx5dv"),
        (6, 50_000, None, "operator", "sqd"),
        (9, 51_000, 51_001, "planner", "tc"),
    ]
    assert steer_views.steered(state, "b") == {"steered": [], "connections": []}


def test_jobs_are_known_by_the_names_of_queue_pairs_and_follow_what_is_told() -> None:
    store = VerbsStore()
    assert store.jobs == {}
    store.hear(report("mlx5dv", "sqd"), {"eth0"}, 0.0)
    assert store.jobs == {name(5): "slurm:7", name(6): "slurm:7"}
    store.hear(report(number=2), {"eth0"}, 0.0)
    assert store.jobs == {}
