"""Between which leaves it can become sure that all paths are known."""

import numpy as np
import pytest

from manager.fabric.choice import MOST_CANDIDATES, confidence, may_be_sure
from manager.fabric.orders import BATCH


def _looks(rng: np.random.Generator, paths: int) -> tuple[bool, int]:
    """Whether it becomes sure that all of so many paths are known, and after how many ports that is seen or given up."""
    taken = rng.integers(0, paths, MOST_CANDIDATES)
    for ports in range(BATCH, MOST_CANDIDATES + 1, BATCH):
        distinct = len(set(taken[:ports].tolist()))
        if confidence(ports, distinct) >= 0.99:
            return True, ports
        if not may_be_sure(ports, distinct, MOST_CANDIDATES):
            return False, ports
    return False, MOST_CANDIDATES


@pytest.mark.parametrize("paths", [1, 2, 5, 16, 32, 48])
def test_few_paths_are_looked_for_until_all_are_known(paths: int) -> None:
    rng = np.random.default_rng(paths)
    assert np.mean([_looks(rng, paths)[0] for _ in range(400)]) >= 0.97


@pytest.mark.parametrize("paths", [256, 1024, 8192])
def test_too_many_paths_are_soon_given_up(paths: int) -> None:
    rng = np.random.default_rng(paths)
    found = [_looks(rng, paths) for _ in range(400)]
    assert not any(is_sure for is_sure, _ in found)
    assert np.mean([ports for _, ports in found]) < 50
