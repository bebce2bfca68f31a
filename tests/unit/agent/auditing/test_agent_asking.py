"""Whom a host asks, how often, how fast, and what it tells of who is silent."""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from cwdp.agent.auditing.asking import COUNTERS, FIRST_PORT, PORTS, ROUNDS, TRIES, Asking, Limits
from cwdp.agent.probing.prober import Told
from cwdp.shared.audit.asks import MOST_PROBES, MOST_SHOWN, MOST_SILENT, Ask, Asked

Answers = Callable[[str, int], bool]
FAST = Limits(step_s=0.0, wait_s=0.02, apart_s=0.0)


class FakeNic:
    """Answers at once, as it is told.

    Attributes:
        asked: how often each address and port was.
        batches: how many requests left together.
    """

    def __init__(self, ifname: str, answers: Answers, ipv4: str | None = "10.0.0.1") -> None:
        self.ifname, self._answers, self._ipv4 = ifname, answers, ipv4
        self.asked: Counter[tuple[str, int]] = Counter()
        self.batches: list[int] = []
        self.takes = self.tells = True
        self.sends = True

    def address(self, family: socket.AddressFamily) -> str | None:
        return self._ipv4 if family == socket.AF_INET else "fd00::1"

    def ask(self, asked: Sequence[tuple[str, int]], _now_ns: int, tell: Told) -> bool:
        if not self.takes:
            return False
        self.asked.update(asked)
        self.batches.append(len(asked))
        assert len({":" in address for address, _ in asked}) == 1
        if self.tells:
            sent = np.full(len(asked), self.sends)
            tell(sent, sent & np.array([self._answers(*one) for one in asked]))
        return True


def _addresses(*hosts: int) -> bytes:
    return b"".join(socket.inet_aton(f"10.0.{host >> 8}.{host & 255}") for host in hosts)


def _make(nics: Sequence[FakeNic], ask: Ask, limits: Limits = FAST) -> tuple[Asked, Counter[str]]:
    counters: Counter[str] = Counter()
    told = asyncio.run(Asking(nics, counters, limits).make(ask))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Asked) == told
    return told, counters


def test_all_are_asked_once_where_all_answer() -> None:
    nics = [FakeNic(name, lambda *_: True) for name in ("nic0", "nic1")]
    ipv6 = socket.inet_pton(socket.AF_INET6, "fd00::2")
    ask = Ask(nics=["nic0", "nic1", "gone"], ipv4=_addresses(2, 3), ipv6=ipv6, ports=20)
    told, counters = _make(nics, ask)
    assert [(one.nic, one.asked, one.answered) for one in told.nics] == [("nic0", 60, 60), ("nic1", 60, 60)]
    assert (told.silent, told.beyond, told.unsettled) == ([], 0, 0)
    for nic in nics:
        assert Counter(address for address, _ in nic.asked.elements()) == dict.fromkeys(
            ("10.0.0.2", "10.0.0.3", "fd00::2"), 20
        )
        assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for _, port in nic.asked)
        assert max(nic.batches) <= FAST.at_once
    assert counters == {"asks_sent": 120, "asks_answered": 120, "asks_unsent": 0}
    assert counters.keys() == set(COUNTERS)


def test_a_pair_that_is_silent_is_tried_as_often_as_may_be_and_told() -> None:
    nic = FakeNic("nic0", lambda address, _: address != "10.0.0.3")
    told, _ = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(2, 3), ports=10))
    [silent] = told.silent
    assert (silent.nic, silent.dst_addr, silent.asked, silent.answered) == ("nic0", "10.0.0.3", 10, 0)
    assert (silent.unsent, len(silent.sports)) == (0, MOST_SHOWN)
    assert {nic.asked["10.0.0.3", port] % TRIES for port in silent.sports} == {0}
    assert sum(count for (address, _), count in nic.asked.items() if address == "10.0.0.2") == 10


def test_single_ports_are_told() -> None:
    told, _ = _make(
        [FakeNic("nic0", lambda _, port: port % 4 != 0)],
        Ask(nics=["nic0"], ipv4=_addresses(*range(2, 10)), ports=40),
    )
    assert len(told.silent) == 8
    assert all(0 < one.answered < one.asked == 40 for one in told.silent)
    assert not any(port % 4 for one in told.silent for port in one.sports)


@pytest.mark.parametrize("seed", range(3))
def test_losses_of_one_in_a_hundred_each_way_are_no_silence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nic = FakeNic("nic0", lambda *_: bool(rng.random() > 0.02))
    told, _ = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(*range(2, 1_002)), ports=20))
    assert (told.silent, told.unsettled) == ([], 0)
    assert sum(nic.asked.values()) < 1.03 * 20_000


def test_nothing_is_told_one_by_one_of_a_nic_that_nobody_answers() -> None:
    dead, well = FakeNic("nic0", lambda *_: False), FakeNic("nic1", lambda *_: True)
    told, _ = _make([dead, well], Ask(nics=["nic0", "nic1"], ipv4=_addresses(2, 3), ports=5))
    assert [(one.nic, one.answered) for one in told.nics] == [("nic0", 0), ("nic1", 10)]
    assert told.silent == []


def test_what_does_not_leave_the_host_is_told_as_that() -> None:
    nic = FakeNic("nic0", lambda *_: True)
    nic.sends = False
    well = FakeNic("nic1", lambda address, _: address == "10.0.0.2")
    told, counters = _make([nic, well], Ask(nics=["nic0", "nic1"], ipv4=_addresses(2, 3), ports=5))
    assert [one.unsent for one in told.silent] == [0]
    assert counters["asks_unsent"] == 0
    nic.takes = False
    _, counters = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(2, 3), ports=5))
    assert (counters["asks_sent"], counters["asks_unsent"]) == (0, 10 * TRIES)


def test_what_is_never_told_is_not_settled() -> None:
    """The schedule changes while requests are under way."""
    nic = FakeNic("nic0", lambda *_: True)
    nic.tells = False
    told, counters = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(2, 3), ports=5))
    assert ([(one.asked, one.answered) for one in told.nics], told.unsettled) == ([(0, 0)], 2)
    assert counters["asks_sent"] == 10 * ROUNDS


def test_no_more_is_asked_than_may_be_whatever_is_ordered() -> None:
    nic = FakeNic("nic0", lambda *_: True)
    told, _ = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(*range(2, 1_002)), ports=1_000))
    assert told.nics[0].asked == sum(nic.asked.values()) == MOST_PROBES
    nics = [FakeNic(f"nic{number}", lambda *_: True) for number in range(13)]
    told, _ = _make(nics, Ask(nics=[one.ifname for one in nics], ipv4=_addresses(*range(2, 2_050)), ports=1))
    assert (sum(sum(one.asked.values()) for one in nics), told.unsettled) == (0, 13 * 2_048)


def test_where_much_is_silent_pairs_are_told_within_bounds() -> None:
    """Whole ones first; each has a port at least that was tried as often as others."""
    nic = FakeNic(
        "nic0", lambda address, port: address.startswith("10.0.0") or address == "10.0.1.1" or port % 2 > 0
    )
    told, _ = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(*range(2, 2_002)), ports=12))
    assert len(told.silent) == MOST_SILENT
    assert told.beyond > 500
    dead = FakeNic("nic0", lambda address, port: port % 2 > 0 and not address.startswith("10.0.1"))
    told, _ = _make([dead], Ask(nics=["nic0"], ipv4=_addresses(*range(2, 2_002)), ports=12))
    assert [one.answered == 0 for one in told.silent[:256]] == [True] * 256
    assert sum(dead.asked.values()) <= MOST_PROBES + (TRIES + 2) * FAST.again


def test_time_is_bounded() -> None:
    nic = FakeNic("nic0", lambda *_: True)
    told, _ = _make(
        [nic],
        Ask(nics=["nic0"], ipv4=_addresses(*range(2, 1_002)), ports=20),
        Limits(step_s=0.01, wait_s=0.02, all_s=0.2),
    )
    assert told.nics[0].asked == told.nics[0].answered < 1_000
    assert told.unsettled > 500
    assert told.silent == []


def test_a_nic_asks_only_addresses_of_its_families() -> None:
    nic = FakeNic("nic0", lambda *_: True, ipv4=None)
    told, _ = _make([nic], Ask(nics=["nic0"], ipv4=_addresses(2, 3), ports=5))
    assert (told.nics, nic.asked) == ([], Counter())
