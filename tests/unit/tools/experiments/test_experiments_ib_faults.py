"""What `cwdp lab run ib-faults` does and where, and what it calls right."""

import random
from typing import Any

import pytest

from tools.experiments.ib_faults.model import KINDS, judge, summarise
from tools.ib.faults import Fault, Kind, draw
from tools.ib.lab import links
from tools.ib.topology import Clos

TOPOLOGY = Clos()
SINCE_S, WITHIN_S = 1_000.0, 5.0


def named(number: int, kind: str, subject: str, after_s: float = 1.0) -> dict[str, Any]:
    return {"number": number, "kind": kind, "subject": {"name": subject}, "start_s": SINCE_S + after_s}


def drawn(kind: Kind, seed: int) -> Fault:
    return draw(kind, TOPOLOGY, random.Random(seed), (), ("h1", "h16"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_right_alone_and_in_time_is_right(kind: Kind, seed: int) -> None:
    fault = drawn(kind, seed)
    (subject,) = (subject for one, subject in fault.right if one == fault.decisive)
    told = named(1, fault.decisive, subject)
    assert judge(fault, [told], SINCE_S, WITHIN_S).is_right
    assert judge(fault, [told], SINCE_S, WITHIN_S).after_s == 1.0
    assert not judge(fault, [], SINCE_S, WITHIN_S).is_right
    assert not judge(fault, [named(1, fault.decisive, subject, 6.0)], SINCE_S, WITHIN_S).is_right
    besides = judge(fault, [told, named(2, "degraded", "elsewhere")], SINCE_S, WITHIN_S)
    assert (besides.is_right, besides.others) == (False, ("degraded elsewhere",))


def test_a_link_that_flaps_may_be_called_down_too_but_not_only() -> None:
    fault = drawn("flapping", 1)
    cable = next(subject for _, subject in fault.right)
    down, flaps = named(1, "dead", cable, -3.0), named(2, "flapping", cable)
    assert judge(fault, [down, flaps], SINCE_S, WITHIN_S).is_right
    assert not judge(fault, [down], SINCE_S, WITHIN_S).is_right


def test_the_wrong_end_or_direction_is_wrong() -> None:
    fault = drawn("errors", 2)
    ((kind, subject),) = fault.right
    a, b = subject.split(" > ")
    assert not judge(fault, [named(1, kind, f"{b} > {a}")], SINCE_S, WITHIN_S).is_right


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_all_but_those_that_are_left_alone(kind: Kind) -> None:
    every = {link.key for link in links.every(TOPOLOGY)}
    avoided = set(sorted(every)[::2])
    rng = random.Random(3)
    keys = {draw(kind, TOPOLOGY, rng, avoided, ("h1", "h16")).link.key for _ in range(500)}
    of_readers = {link.key for link in links.every(TOPOLOGY) if link.a[0] in ("h1", "h16")}
    assert keys == every - avoided - (of_readers if kind in ("cut", "flapping") else set())


def test_the_same_seed_is_the_same_faults() -> None:
    assert [drawn(kind, 5) for kind in KINDS] == [drawn(kind, 5) for kind in KINDS]


def test_kinds_are_summed_up() -> None:
    fault = drawn("cut", 4)
    ((kind, subject),) = fault.right
    verdicts = [
        judge(fault, told, SINCE_S, WITHIN_S)
        for told in ([named(1, kind, subject, 0.5)], [named(1, kind, subject, 1.5)], [])
    ]
    expected = {"kind": "cut", "faults": 3, "right": 2, "after_p50_s": 1.0, "after_max_s": 1.5}
    assert summarise(verdicts) == [expected]
