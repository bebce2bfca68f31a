"""The order of steps by which a connection changes its path: nobody migrates before both have loaded."""

import errno
from itertools import permutations
from random import Random

import pytest

from manager.ib.migration.steps import How, Migration, Step

LOADS = [Step(0, "load"), Step(1, "load")]
FIRST, SECOND = Step(0, "migrate"), Step(1, "migrate")
DEADLINE_NS = 1_000
HOWS: list[How] = ["load", "migrate"]


def begun() -> Migration:
    migration = Migration(DEADLINE_NS)
    assert migration.begin() == LOADS
    return migration


@pytest.mark.parametrize("order", [*permutations(LOADS)])
def test_one_end_migrates_when_both_have_loaded_then_the_other_is_asked(order: tuple[Step, Step]) -> None:
    migration = begun()
    assert migration.hear(order[0], 0, 1) == []
    assert migration.hear(order[1], 0, 2) == [FIRST]
    assert migration.hear(FIRST, 0, 3) == [SECOND]
    assert not migration.is_over
    assert migration.hear(SECOND, 0, 4) == []
    assert (migration.state, migration.error) == ("done", 0)


@pytest.mark.parametrize("error", [errno.EBUSY, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTCONN, errno.EIO])
@pytest.mark.parametrize("end", [0, 1])
def test_nobody_migrates_where_one_has_not_loaded(end: int, error: int) -> None:
    migration = begun()
    assert migration.hear(LOADS[1 - end], 0, 1) == []
    assert migration.hear(LOADS[end], error, 2) == []
    assert (migration.state, migration.error) == ("failed", error)
    assert migration.hear(LOADS[end], 0, 3) == []


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EBUSY])
def test_one_that_is_not_armed_yet_is_ordered_again_until_the_deadline(error: int) -> None:
    migration = begun()
    for step in LOADS:
        migration.hear(step, 0, 1)
    assert migration.hear(FIRST, error, 2) == [FIRST]
    assert migration.hear(FIRST, error, DEADLINE_NS) == [FIRST]
    assert migration.hear(FIRST, error, DEADLINE_NS + 1) == []
    assert (migration.state, migration.error) == ("failed", errno.ETIMEDOUT)


def test_what_is_not_answered_is_given_up_at_the_deadline() -> None:
    migration = begun()
    migration.hear(LOADS[0], 0, 1)
    migration.tidy(DEADLINE_NS)
    assert not migration.is_over
    migration.tidy(DEADLINE_NS + 1)
    assert (migration.state, migration.error) == ("failed", errno.ETIMEDOUT)
    assert migration.hear(LOADS[1], 0, DEADLINE_NS + 2) == []


def test_answers_that_come_twice_or_unasked_change_nothing() -> None:
    migration = begun()
    assert migration.hear(FIRST, 0, 1) == []
    assert migration.hear(LOADS[0], 0, 1) == []
    assert migration.hear(LOADS[0], 0, 1) == []
    assert migration.state == "loading"
    assert migration.hear(SECOND, 0, 1) == []
    assert migration.hear(LOADS[1], 0, 1) == [FIRST]
    assert migration.hear(LOADS[1], 0, 1) == []
    assert migration.hear(SECOND, 0, 1) == []
    assert migration.state == "migrating"


def test_whatever_is_answered_nobody_is_ordered_to_migrate_before_both_have_loaded() -> None:
    random = Random(5)
    errors = [0, 0, 0, errno.EAGAIN, errno.EBUSY, errno.EINVAL, errno.EIO]
    for _ in range(2_000):
        migration, loaded = begun(), set()
        for now_ns in range(0, 1_200, 100):
            step, error = (
                Step(random.randrange(2), random.choice(HOWS)),
                random.choice(errors),
            )
            if step.how == "load" and not error:
                loaded.add(step.end)
            for ordered in migration.hear(step, error, now_ns):
                assert ordered.how == "migrate"
                assert loaded == {0, 1}
                assert now_ns <= DEADLINE_NS
        migration.tidy(1_200)
        assert migration.is_over
