"""Counters of many hosts added up: held against a plain sum, name by name."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from manager.hosts.counters import LARGEST_IN_ARRAY, LARGEST_NAMES, MOST_AS_ARRAY, CounterTotals

NAMES = [
    *(f"dataplane.nic{nic}.reason_{reason}" for nic in range(3) for reason in range(4)),
    *(f"agent.reason_{reason}" for reason in range(4)),
    "no.form",
    "agent.No Form",
]


class _Plain:
    """One name after another, as the totals are defined."""

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, str]] = Counter()
        self.dropped = 0
        self.last: dict[str, Mapping[str, int]] = {}

    def add(self, host: str, counters: Mapping[str, int]) -> None:
        for name, value in counters.items():
            key = name.split(".")[0], name.split(".")[-1]
            is_new_and_full = key not in self.totals and len(self.totals) >= LARGEST_NAMES
            if name in ("no.form", "agent.No Form") or value < 0 or is_new_and_full:
                self.dropped += 1
                continue
            before = self.last.get(host, {}).get(name, 0)
            self.totals[key] += value - before if value >= before else value
        self.last[host] = counters


@pytest.mark.parametrize("seed", range(6))
def test_as_if_each_name_were_added_by_itself(seed: int) -> None:
    """The same names again, others, in another order; restarts, hosts that go, and numbers that nobody counts to."""
    draw, totals, plain = np.random.default_rng(seed), CounterTotals(), _Plain()
    told: dict[str, dict[str, int]] = {}
    for _ in range(300):
        host = "abcdef"[draw.integers(6)]
        counters = told.setdefault(host, dict.fromkeys(NAMES[: 6 * draw.integers(1, 4)], 0))
        counters = {name: value + int(draw.integers(0, 50)) for name, value in counters.items()}
        match draw.integers(12):
            case 0:
                counters = {name: int(draw.integers(5)) for name in counters}
            case 1:
                counters = {name: counters.get(name, 7) for name in draw.permutation(NAMES).tolist()[:9]}
            case 2:
                counters[NAMES[0]] = int(draw.choice([-1, -(2**62)]))
            case 3:
                counters[NAMES[1]] = [2**64 - 1, 2**63, LARGEST_IN_ARRAY + 1][draw.integers(3)]
            case 4:
                totals.forget(host)
                plain.last.pop(host, None)
        told[host] = counters
        totals.add(host, counters)
        plain.add(host, counters)
        assert dict(totals.of(host)) == counters
    assert dict(totals.totals) == dict(plain.totals)
    assert totals.dropped == plain.dropped > 0
    assert totals.of("stranger") == {}


def test_names_beyond_the_room_stay_out_when_they_are_told_again() -> None:
    totals, counters = CounterTotals(), {f"agent.name{i}": 1 for i in range(LARGEST_NAMES + 88)}
    for turn in range(3):
        totals.add("a", {name: value + turn for name, value in counters.items()})
    assert (len(totals.totals), totals.dropped) == (LARGEST_NAMES, 3 * 88)
    assert set(totals.totals.values()) == {3}


def test_more_counters_than_an_array_is_made_of_count_all_the_same() -> None:
    totals = CounterTotals()
    for value in (1, 3):
        totals.add("a", {f"agent.x{i}.one": value for i in range(MOST_AS_ARRAY + 1)})
    assert dict(totals.totals) == {("agent", "one"): 3 * (MOST_AS_ARRAY + 1)}
