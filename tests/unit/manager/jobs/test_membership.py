"""Which flows are of one job."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from manager.jobs.membership import Owner, Owners, Together, group
from manager.jobs.steps import finish
from manager.jobs.table import flows_of
from manager.jobs.windows import SHORT
from tools.sim.jobs.judging import NOW_NS, PLACES, TROUBLES, Place, Trouble, many_jobs, members_right


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("place", PLACES)
def test_up_to_eight_jobs_at_once(place: Place, trouble: Trouble) -> None:
    """Two that share NICs and happen to iterate in step, or one twice as fast as the other, are taken for one."""
    counts = [members_right(many_jobs(seed, place, trouble)) for seed in range(12)]
    good, total = (sum(each) for each in zip(*counts, strict=True))
    assert good >= (0.98 if place == "apart" else 0.9) * total


def test_what_was_together_stays_so_and_others_join() -> None:
    """Also those that send too seldom now to be told; not what is known to be of different processes."""
    world = many_jobs(1, "apart")
    table = flows_of(world.rings, world.owners, 0)
    nobody: list[Owners] = [(None, None)] * len(table.flows)
    found = [set(each.flows) for each in finish(group(table, nobody, NOW_NS, SHORT.length_ns))]
    assert len(found) == 2
    first = [table.flows[i] for i in sorted(found[0])]
    seldom = replace(table, left=table.left[:, :1] + np.array([0, 3]))

    def groups(owners: Sequence[Owners], before: list[Together]) -> list[set[int]]:
        made = finish(group(seldom, owners, NOW_NS, SHORT.length_ns, before))
        return [set(each.flows) for each in made]

    assert all(len(each) == 1 for each in groups(nobody, []))
    (together,) = [each for each in groups(nobody, [Together(first, 0.8)]) if len(each) > 1]
    assert together == found[0]
    alone = table.take(np.arange(len(table.flows)) == 0)
    (told,) = finish(group(alone, nobody, NOW_NS, SHORT.length_ns, [Together(first, 0.8)]))
    assert told.likeness == 0.8
    owned: list[Owners] = [
        (Owner("h1", i), Owner("h2", i)) if i in found[0] else (None, None) for i in range(len(table.flows))
    ]
    assert all(len(each) == 1 for each in groups(owned, [Together(first, 0.8)]))
