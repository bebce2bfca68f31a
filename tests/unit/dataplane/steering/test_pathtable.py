"""Numbers of watched paths, against a model that counts users by hand."""

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState
from cwdp.dataplane.steering.pathtable import PathKey, PathTable
from cwdp.errors import SteeringError

DSTS = [bytes(15) + bytes([i]) for i in range(4)]


def _keys(paths: NDArray[np.void]) -> dict[int, PathKey]:
    """What stands at each number in use."""
    used = np.flatnonzero(paths["users"])
    return {
        int(n): PathKey(paths["dst"][n].tobytes(), int(paths["sport"][n]), int(paths["protocol"][n]))
        for n in used
    }


def _counted(paths: NDArray[np.void], column: str) -> Counter[PathKey]:
    return Counter({key: int(paths[column][n]) for n, key in _keys(paths).items() if paths[column][n]})


@pytest.mark.parametrize("seed", range(20))
def test_users_come_and_go_as_in_a_count_by_hand(seed: int) -> None:
    source = random.Random(seed)
    paths = np.zeros(32, dtype=abi.PATH)
    users: list[list[PathKey]] = []
    table = PathTable(paths)
    for _ in range(400):
        wanted = [
            PathKey(source.choice(DSTS), source.randrange(50_000, 50_008), source.choice((0, 6)))
            for _ in range(source.choice((1, 2)))
        ]
        if source.random() < 0.55:
            try:
                numbers = table.use(wanted)
            except SteeringError:
                assert len({key for keys in (*users, wanted) for key in keys}) > len(paths) - 1
                continue
            assert [_keys(paths)[n] for n in numbers] == wanted
            users.append(wanted)
        elif users:
            table.leave(users.pop(source.randrange(len(users))))
        if source.random() < 0.1:
            table = PathTable(paths)
        assert _counted(paths, "users") == Counter(key for keys in users for key in keys)
        assert _counted(paths, "primaries") == Counter(keys[0] for keys in users)
        assert paths["users"][0] == 0


def test_a_full_table_is_left_as_it_was() -> None:
    paths = np.zeros(4, dtype=abi.PATH)
    table = PathTable(paths)
    table.use([PathKey(DSTS[0], 50_000), PathKey(DSTS[0], 50_001)])
    before = paths.copy()
    with pytest.raises(SteeringError, match="no more fit"):
        table.use([PathKey(DSTS[1], 50_000), PathKey(DSTS[1], 50_001)])
    assert (paths == before).all()
    table.use([PathKey(DSTS[0], 50_001), PathKey(DSTS[1], 50_000)])


def test_what_a_path_was_before_is_not_taken_over() -> None:
    paths = np.zeros(4, dtype=abi.PATH)
    table = PathTable(paths)
    (number,) = table.use([PathKey(DSTS[0], 50_000)])
    paths["state"][number], paths["flaps"][number] = PathState.DOWN, 3
    assert table.state(PathKey(DSTS[0], 50_000)) is PathState.DOWN
    table.leave([PathKey(DSTS[0], 50_000)])
    assert table.state(PathKey(DSTS[0], 50_000)) is PathState.UP
    table.use([PathKey(DSTS[1], port) for port in (1, 2, 3)])
    assert paths["state"].tolist() == [PathState.UP] * 4
    assert paths["flaps"].sum() == 0


def test_a_recount_puts_right_what_was_left_wrong() -> None:
    paths = np.zeros(8, dtype=abi.PATH)
    PathTable(paths).use([PathKey(DSTS[0], port) for port in (1, 2, 3)])
    paths["users"][2], paths["primaries"][1] = 7, 7
    PathTable(paths).recount(
        [[PathKey(DSTS[0], 1)], [PathKey(DSTS[0], 1), PathKey(DSTS[0], 3)], [PathKey(DSTS[1], 3)]]
    )
    assert _counted(paths, "users") == {
        PathKey(DSTS[0], 1): 2,
        PathKey(DSTS[0], 3): 1,
        PathKey(DSTS[1], 3): 1,
    }
    assert _counted(paths, "primaries") == {PathKey(DSTS[0], 1): 2, PathKey(DSTS[1], 3): 1}


def test_a_recount_of_nobody() -> None:
    paths = np.zeros(8, dtype=abi.PATH)
    PathTable(paths).use([PathKey(DSTS[0], 1)])
    PathTable(paths).recount([])
    assert not paths["users"].any()
    assert not paths["primaries"].any()
