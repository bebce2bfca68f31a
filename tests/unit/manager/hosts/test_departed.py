"""Hosts that are put out, and reports that are lost on the way."""

import msgspec
import numpy as np
from fakes import hello

from cwdp.shared.bus.edges import fit_rows
from cwdp.shared.bus.messages import Report
from cwdp.shared.bus.records import QP_ROW
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.hosts.departed import HEARD_S, Departed
from manager.hosts.sequences import Sequences
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState


def _report(host: str, boot_id: str, seq: int) -> Report:
    return Report(host=host, boot_id=boot_id, seq=seq, local_ns=0, fits=fit_rows([]), counters={}, clock=None)


def test_what_was_said_before_a_host_was_put_out_is_not_heard_and_one_that_joins_anew_is() -> None:
    departed = Departed()
    departed.put_out("h", 5.0)
    assert departed.is_out("h", 5.0 + HEARD_S / 2)
    assert not departed.is_out("other", 5.0)
    departed.expire(5.0 + HEARD_S / 2)
    assert departed.is_out("h", 5.0 + HEARD_S / 2)
    assert not departed.is_out("h", 5.0 + HEARD_S)


def test_of_a_host_that_is_put_out_the_leader_keeps_nothing() -> None:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    for name in ("h", "stays"):
        state.hear_hello(hello(name), 0.0)
        state.hear_report(msgspec.structs.replace(_report(name, "1", 1), counters={"bus.received": 7}), 0.0)
        state.traffic.queue_pairs.hear(
            [NicReport((name, "eth0"), np.zeros(1, QP_ROW))], local_ns=1, now_s=0.0
        )
    members = state.probeable(0.0)
    documents = state.schedule(members, state.build_graph(members))
    assert {document.host for document in documents} == {"h", "stays"}
    state.put_out("h", 1.0)
    assert list(state.traffic.queue_pairs.tables) == [("stays", "eth0")]
    state.hear_hello(hello("h"), 1.5)
    state.expire(1.5)
    assert list(state.members.hosts) == ["stays"]
    assert (state.counters.of("h"), state.counters.of("stays")) == ({}, {"bus.received": 7})
    assert all(document.host == "stays" for document in state.documents())
    assert (state.hellos["ok"], state.hellos["put_out"]) == (2, 1)
    state.hear_hello(hello("h"), 1.0 + HEARD_S)
    assert set(state.members.hosts) == {"h", "stays"}


def test_reports_that_are_missing_are_counted_by_agent() -> None:
    sequences = Sequences()
    told = [("h", "1", 3), ("h", "1", 4), ("h", "1", 7), ("h", "2", 1), ("h", "2", 1), ("i", "1", 9)]
    assert [sequences.follow(_report(*each)) for each in told] == [0, 0, 2, 0, 0, 0]
    assert sequences.keep_only({"i"}) == ["h"]
    assert sequences.follow(_report("h", "2", 9)) == 0
