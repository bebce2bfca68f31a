"""How much is taken in from each host, and who is named when it sends more."""

import asyncio
import itertools
import time
import zlib

import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority
from fakes import until

from cwdp.agent.clusterkeys import FIRST_INTERVAL_S
from cwdp.agent.joining import ANSWER_S
from cwdp.shared.bus.messages import Event, encode
from cwdp.shared.bus.packing import MOST_BYTES, packed
from cwdp.shared.bus.sealing import OverLimitError
from cwdp.shared.bus.subjects import joining, pod_hosts, up
from cwdp.shared.identity.joining import RENEW
from cwdp.shared.identity.probe_keys import KEYS
from cwdp.shared.tasks import end
from manager.bus import floods
from manager.bus.flood_watch import LimitedSeal, name_floods
from manager.bus.floods import Floods
from manager.duties import UNPACK, Duties

H1, H2 = up(POD, "h1", "report"), up(POD, "h2", "report")


def admitted(watch: Floods, count: int, *, now_s: float, subject: str = H1, size: int = 100) -> int:
    return sum(watch.admits(subject, size, now_s) for _ in range(count))


def flooded(now_s: float = 0.0, over: int = 500) -> Floods:
    """An account of which h1 has used up all, and so many messages more."""
    watch = Floods()
    admitted(watch, int(floods.BURST_MESSAGES) + over, now_s=now_s, size=1)
    return watch


def kinds(watch: Floods, now_s: float) -> list[tuple[str, str]]:
    return [(told.host, told.kind) for told in watch.step(now_s)]


def test_so_many_messages_at_once_and_so_many_a_second_are_taken_in() -> None:
    watch, burst = Floods(), int(floods.BURST_MESSAGES)
    assert admitted(watch, burst + 500, now_s=0.0) == burst
    assert admitted(watch, 5_000, now_s=2.0) == 2 * floods.MESSAGES_PER_S


def test_so_many_bytes_are_taken_in() -> None:
    watch, burst = Floods(), int(floods.BURST_BYTES)
    assert admitted(watch, 100, now_s=0.0, size=MOST_BYTES) == burst // MOST_BYTES
    assert admitted(watch, 100, now_s=1.0, size=MOST_BYTES) == floods.BYTES_PER_S // MOST_BYTES


def test_what_a_small_message_unpacks_to_counts_too() -> None:
    watch, taken = Floods(), 0
    while watch.admits(H1, 1_000, 0.0):
        watch.unpacked(H1, MOST_BYTES)
        taken += 1
    assert taken == floods.BURST_UNPACKED // MOST_BYTES
    assert watch.admits(H2, 1_000, 0.0)
    assert watch.admits(H1, 1_000, 1.0)


def test_one_host_does_not_use_up_what_another_may_send() -> None:
    watch = flooded()
    assert admitted(watch, 10, now_s=0.0) == 0
    assert admitted(watch, 10, now_s=0.0, subject=H2) == 10


def test_all_that_a_host_says_counts_together() -> None:
    watch = flooded()
    for subject in (up(POD, "h1", "event"), up(POD, "h1", "renew"), joining(POD, "h1")):
        assert admitted(watch, 1, now_s=0.0, subject=subject) == 0


def test_so_many_questions_are_answered_and_all_else_is_heard_besides() -> None:
    watch = Floods()
    asked = [joining(POD, "h1"), up(POD, "h1", RENEW), up(POD, "h1", KEYS)]
    taken = [admitted(watch, 50, now_s=0.0, subject=subject) for subject in asked]
    assert sum(taken) == floods.BURST_QUESTIONS
    assert admitted(watch, 10, now_s=0.0) == 10
    assert admitted(watch, 10, now_s=0.0, subject=up(POD, "h2", KEYS)) == 10
    assert admitted(watch, 10, now_s=1.0, subject=asked[0]) == floods.QUESTIONS_PER_S
    assert kinds(watch, 1.0) == [("h1", "host_floods")]


def test_an_agent_asks_less_than_is_answered() -> None:
    each_s = FIRST_INTERVAL_S, ANSWER_S
    assert sum(1 / interval_s for interval_s in each_s) < floods.QUESTIONS_PER_S


def test_what_leaders_tell_each_other_is_not_limited() -> None:
    watch, burst = Floods(), int(floods.BURST_MESSAGES)
    assert admitted(watch, burst + 100, now_s=0.0, subject=pod_hosts("other")) == burst + 100
    watch.unpacked(pod_hosts("other"), MOST_BYTES)
    assert watch.known == 0


BUSIEST = [
    pytest.param(4, 60, 16, 150_000, 508_000, id="16 NICs with 4,096 busy queue pairs each"),
    pytest.param(8, 10, 16, 150_000, 508_000, id="the same while their clocks change"),
    pytest.param(4, 60, 24, 165_000, 500_000, id="the same, and samples of 100 Gbit/s on each NIC"),
    pytest.param(1, 60, 100, 50_000, 500_000, id="the tables of a large subnet over InfiniBand"),
    pytest.param(1, 1, 131_000, 200, 250, id="all paths of 16 NICs given up, and used again"),
    pytest.param(
        1, 1, 400, 40_000, 130_000, id="8 NICs, 1,024 queue pairs each, heard after the loop stood for 10 s"
    ),
]
"""Rounds a second, for how many seconds, messages of each round, and bytes of a message, packed and unpacked."""


@pytest.mark.parametrize(("rounds", "seconds", "messages", "size", "unpacked"), BUSIEST)
def test_the_busiest_hosts_are_never_limited(
    rounds: int, seconds: int, messages: int, size: int, unpacked: int
) -> None:
    watch = Floods()
    for number in range(seconds * rounds):
        for _ in range(messages):
            assert watch.admits(H1, size, number / rounds)
            watch.unpacked(H1, unpacked)
    assert watch.step(seconds) == []


def test_a_host_is_named_once_when_it_begins_and_once_when_it_is_over() -> None:
    watch = flooded(now_s=0.5)
    (began,) = watch.step(1.0)
    assert began == (
        "h1",
        "host_floods",
        "131,572 messages/s, 0.1 MB/s, more than is taken in; unless its agent does that: cwdp fleet revoke",
    )
    for second in range(1, 11):
        admitted(watch, 2_000, now_s=float(second))
        assert kinds(watch, second + 0.5) == []
    assert kinds(watch, 10.0 + floods.OVER_S - 1) == []
    (over,) = watch.step(10.0 + floods.OVER_S)
    assert over.kind == "host_floods_over"
    dropped = 500 + 10 * 2_000 - round(9.5 * floods.MESSAGES_PER_S)
    assert over.detail == f"after 10 s; {dropped} messages were dropped"
    assert kinds(watch, 20.0 + floods.OVER_S) == []


def test_one_that_begins_again_is_named_again() -> None:
    watch = flooded()
    assert kinds(watch, 1.0) == [("h1", "host_floods")]
    assert kinds(watch, 1.0 + floods.OVER_S) == [("h1", "host_floods_over")]
    admitted(watch, int(floods.BURST_MESSAGES) + 1, now_s=62.0)
    assert kinds(watch, 63.0) == [("h1", "host_floods")]


def test_hosts_that_are_silent_take_no_memory() -> None:
    watch = flooded()
    admitted(watch, 10, now_s=0.0, subject=H2)
    watch.step(1.0)
    assert watch.known == 1
    for second in range(2, 200, 10):
        watch.step(float(second))
    assert watch.known == 0


def test_a_clock_that_stands_still_harms_nothing() -> None:
    watch = flooded(now_s=5.0)
    assert admitted(watch, 1, now_s=4.0) == 0
    watch.step(5.0)
    watch.step(5.0)


def sealed(watch: Floods, duties: Duties) -> LimitedSeal:
    return LimitedSeal(authority().control_key, duties, watch)


def event(detail: str = "") -> Event:
    return Event(host="h1", local_ns=1, kind="link_up", nic=None, detail=detail)


def test_what_is_over_is_not_unpacked() -> None:
    duties = Duties()
    seal = sealed(flooded(now_s=time.monotonic() + 3600), duties)
    with pytest.raises(OverLimitError):
        seal.decode(H1, Event, packed(encode(event())))
    assert duties.seconds[UNPACK] == 0


@pytest.mark.parametrize(
    ("data", "unpacked"),
    [
        (packed(encode(event("x" * 500_000))), 500_000),
        (packed(bytes(MOST_BYTES)), MOST_BYTES),
        (zlib.compress(bytes(2 * MOST_BYTES)), MOST_BYTES),
        (b"not packed", MOST_BYTES),
    ],
    ids=["a message", "none", "one that is too large", "garbage"],
)
def test_each_message_counts_by_what_it_takes_to_unpack(data: bytes, unpacked: int) -> None:
    watch = Floods()
    watch.admits(H1, 0, time.monotonic() + 3600)
    seal = sealed(watch, Duties())
    assert taken_in(seal, data) == pytest.approx(floods.BURST_UNPACKED / unpacked, rel=0.01)


def taken_in(seal: LimitedSeal, data: bytes) -> int:
    """How many times a message is looked at, until there is no more room for it; what is none is refused, as by every seal."""
    for count in itertools.count():
        try:
            seal.decode(H1, Event, data)
        except OverLimitError:
            return count
        except msgspec.DecodeError:
            continue
    raise AssertionError


@asynchronous
async def test_who_floods_is_named_as_the_host_is_called() -> None:
    told: list[tuple[str, ...]] = []
    watch = Floods()
    admitted(watch, int(floods.BURST_MESSAGES) + 1, now_s=time.monotonic(), subject=up(POD, "h.1", "event"))
    task = asyncio.create_task(name_floods(watch, {"h_2", "h.1"}, lambda *what: told.append(what)))
    await until(lambda: bool(told))
    await end(task)
    assert [what[:2] for what in told] == [("h.1", "host_floods")]
