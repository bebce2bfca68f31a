"""What is congestion and what is not: slow receivers behind whom few wait, incasts that come and go, bursts, ports that wait by chance."""

import numpy as np
import pytest
from watched import Watched

from manager.ib.faults.chance import LASTS_POLLS, Strays
from tools.bench.ib.quiet import named
from tools.ib.arrays import growth_of, rows_of, subnet_of
from tools.ib.topology import Clos
from tools.ib.traffic import Traffic

TOPOLOGY = Clos()
WARM = 5

Uses = dict[tuple[str, int], tuple[float, float]]
"""The share of a poll in which a port sends, and in which it waits."""


class Subnet:
    def __init__(self) -> None:
        self.watched = Watched()
        self.subnet = subnet_of(TOPOLOGY)
        self.ports = Traffic(TOPOLOGY, np.random.default_rng(0)).ports
        self.rows = rows_of(self.subnet, self.ports)
        self.poll({}, WARM)

    def poll(self, uses: Uses, times: int = 1) -> None:
        shares = np.array([uses.get(port, (0.0, 0.0)) for port in self.ports])
        for _ in range(times):
            self.watched.poll(self.subnet, growth_of(self.subnet, self.rows, shares[:, 0], shares[:, 1]))

    @property
    def found(self) -> set[tuple[str, str]]:
        return self.watched.found


def incast(share: float = 1.0) -> Uses:
    """From two hosts below l2 and one beside it to h1, for a share of a poll."""
    third = share / 3
    waits = {("h2", 1), ("h5", 1), ("h6", 1), ("l2", 5), ("l2", 6), ("s1", 1), ("s2", 1)}
    return {("l1", 1): (share, 0.0)} | dict.fromkeys(waits, (third, share - third))


@pytest.mark.parametrize(
    "behind", [[], [("h2", 1)], [("h2", 1), ("h3", 1)], [("h5", 1), ("l2", 5), ("s1", 1)]]
)
def test_a_slow_receiver_is_named_in_three_polls_however_few_wait_behind_it(
    behind: list[tuple[str, int]],
) -> None:
    subnet = Subnet()
    uses: Uses = {("l1", 1): (0.5, 0.2)} | dict.fromkeys(behind, (0.1, 0.2))
    subnet.poll(uses, 2)
    assert subnet.found == set()
    subnet.poll(uses)
    assert subnet.found == {("slow_receiver", "l1:1 > h1/1")}


@pytest.mark.parametrize("polls", [1, 2])
def test_incasts_that_come_and_go_are_none(polls: int) -> None:
    subnet = Subnet()
    for _ in range(20):
        subnet.poll(incast(), polls)
        subnet.poll({})
    assert subnet.watched.events == []


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_an_incast_of_two_seconds_that_three_polls_share_is_none(part: float) -> None:
    subnet = Subnet()
    for _ in range(20):
        for share in (part, 1.0, 1.0 - part):
            subnet.poll(incast(share))
        subnet.poll({})
    assert subnet.watched.events == []


def test_bursts_in_each_poll_are_none() -> None:
    subnet = Subnet()
    subnet.poll(incast(0.6), 60)
    assert subnet.watched.events == []


def test_an_incast_that_stays_is_named_in_three_polls() -> None:
    subnet = Subnet()
    subnet.poll(incast(), 3)
    assert subnet.found == {("congested", "l1:1 > h1/1")}


def test_a_full_link_is_named_though_another_port_waits_by_chance() -> None:
    subnet = Subnet()
    subnet.poll(incast(), 1)
    subnet.poll(incast() | {("l1", 3): (0.1, 0.3)})
    subnet.poll(incast())
    assert subnet.found == {("congested", "l1:1 > h1/1")}


def test_a_poll_that_tells_nothing_does_not_begin_the_count_anew() -> None:
    subnet = Subnet()
    uses: Uses = {("l1", 1): (0.5, 0.4)}
    subnet.poll(uses, 2)
    subnet.watched.poll(subnet.subnet, None)
    subnet.poll(uses)
    assert subnet.found == {("slow_receiver", "l1:1 > h1/1")}


def test_where_ports_wait_by_chance_more_polls_are_needed() -> None:
    draw = np.random.default_rng(1)
    known = np.ones(3_000, bool)
    quiet, noisy = Strays(), Strays()
    for _ in range(200):
        quiet.step(draw.random(3_000) < 1e-4, known)
        noisy.step(draw.random(3_000) < 0.02, known)
    assert quiet.polls == LASTS_POLLS
    assert noisy.polls == 5


def test_what_lasts_is_not_taken_for_chance() -> None:
    strays, lasting = Strays(), np.arange(100) < 30
    for _ in range(100):
        strays.step(lasting, np.ones(100, bool))
    assert strays.polls == LASTS_POLLS


@pytest.mark.parametrize("seed", range(3))
def test_traffic_without_a_fault_is_none(seed: int) -> None:
    assert named(TOPOLOGY, seed, 200) == []
