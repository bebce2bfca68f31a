"""When a qdisc may be taken away: what comes while it is would be lost."""

from collections.abc import Sequence

import pytest

from cwdp.slices.qdiscs import is_idle

Look = tuple[int, int]


@pytest.mark.parametrize(
    ("looks", "idle"),
    [
        ([(0, 5000), (0, 5000)], True),
        ([(2, 5000), (2, 5000)], False),
        ([(0, 5000), (0, 6000)], False),
        ([(0, 5000), (1, 5000)], False),
        ([(1, 5000), (0, 6000)], False),
    ],
    ids=["nothing", "packets wait", "packets pass", "one comes", "the last one goes"],
)
def test_it_is_idle_where_nothing_waits_or_passes(looks: Sequence[Look], idle: bool) -> None:
    assert is_idle(iter(looks).__next__) is idle
