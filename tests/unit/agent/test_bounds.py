"""What an agent refuses of a leader, and what it takes."""

from random import Random

import msgspec
import pytest
from agent_fakes import CONNECTION

from cwdp.agent.bounds import MOST_CONNECTIONS, Bounds, clock_excess, document_excess
from cwdp.shared.bus.messages import ClockLine, ClockUpdate, Desired, ProbeEdge, RoceSettings

LINE = ClockLine(
    ref_local_ns=5_000_000_000,
    offset_base_ns=7_000_000,
    offset_ns=3.5,
    drift=2e-5,
    bound_ns=80.0,
    bound_drift=1e-9,
    state="synced",
)


def _edge(rate: float, dst: str = "b/nic0", ports: int = 8, back: int = 8) -> ProbeEdge:
    sports = list(range(50_000, 50_000 + ports))
    return ProbeEdge(
        src="a/nic0",
        dst=dst,
        src_addr="10.0.0.1",
        dst_addr="10.0.0.2",
        sports=sports,
        reply_sports=list(range(51_000, 51_000 + back)),
        pairs_per_s=rate,
    )


def _desired(*probes: ProbeEdge, dead_after_ms: float = 10.0) -> Desired:
    return Desired(host="a", version=1, probes=list(probes), roce=RoceSettings(dead_after_ms=dead_after_ms))


def _update(line: ClockLine, timeline: str = "t", seq: int = 1) -> ClockUpdate:
    return ClockUpdate(host="a", timeline=timeline, seq=seq, line=line, priors=[])


@pytest.mark.parametrize(
    "desired",
    [
        _desired(),
        _desired(*(_edge(1_000.0, f"b{n}/nic0") for n in range(64))),
        _desired(_edge(0.0), dead_after_ms=1.0),
        _desired(_edge(1.0), dead_after_ms=10_000.0),
    ],
)
def test_what_managers_ask_for_is_taken(desired: Desired) -> None:
    assert document_excess(desired) == ""


@pytest.mark.parametrize(
    "desired",
    [
        _desired(_edge(60_000.0), _edge(60_000.0, "c/nic0")),
        _desired(_edge(-1.0)),
        _desired(_edge(float("nan"))),
        _desired(_edge(float("inf"))),
        _desired(_edge(10.0, ports=8, back=7)),
        _desired(_edge(10.0, ports=0, back=0)),
        _desired(_edge(10.0, ports=300, back=300)),
        msgspec.structs.replace(_desired(), tcp=[CONNECTION] * (MOST_CONNECTIONS + 1)),
        _desired(dead_after_ms=0.5),
        _desired(dead_after_ms=60_000.0),
    ],
)
def test_what_would_harm_a_host_is_not(desired: Desired) -> None:
    assert document_excess(desired)


@pytest.mark.parametrize("seed", range(20))
def test_a_synced_clock_follows_what_clocks_do(seed: int) -> None:
    draw, before = Random(seed), LINE
    for _ in range(50):
        later_ns = draw.randrange(10**9)
        drift = draw.uniform(-5e-4, 5e-4)
        line = msgspec.structs.replace(
            before,
            ref_local_ns=before.ref_local_ns + later_ns,
            offset_ns=before.offset_ns + before.drift * later_ns + draw.gauss(0, 1e6),
            drift=drift,
        )
        assert clock_excess(before, line) == ""
        before = line


@pytest.mark.parametrize(
    "changed",
    [
        {"offset_ns": float("nan")},
        {"drift": 0.5},
        {"bound_ns": -1.0},
        {"bound_drift": float("inf")},
        {"offset_base_ns": LINE.offset_base_ns + 2_000_000_000},
        {"offset_ns": -5e9},
    ],
)
def test_a_clock_is_not_thrown_about(changed: dict[str, float]) -> None:
    assert clock_excess(LINE, msgspec.structs.replace(LINE, **changed))


@pytest.mark.parametrize("state", ["unsynced", "holdover", "set_aside"])
def test_a_clock_that_was_not_right_may_be_set_anew(state: str) -> None:
    far = msgspec.structs.replace(LINE, offset_base_ns=10**15)
    assert clock_excess(msgspec.structs.replace(LINE, state=state), far) == ""
    assert clock_excess(None, far) == ""
    assert clock_excess(LINE, msgspec.structs.replace(far, found_anew=True)) == ""


def test_what_is_refused_is_counted_each_time_and_told_once() -> None:
    told: list[tuple[str, str | None, str]] = []
    bounds = Bounds(lambda *what: told.append(what))
    for _ in range(3):
        assert not bounds.admits_document(_desired(_edge(1e9)))
    assert bounds.admits_clock(_update(LINE))
    far = msgspec.structs.replace(LINE, offset_base_ns=10**15)
    assert not bounds.admits_clock(_update(far))
    assert bounds.admits_clock(_update(far, timeline="another"))
    assert bounds.counters == {"desired_refused": 3, "clock_refused": 1}
    assert [what[0] for what in told] == ["desired_refused", "clock_refused"]
