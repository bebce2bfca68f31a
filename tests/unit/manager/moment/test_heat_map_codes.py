"""A byte a cell: what it says, and what of a change travels."""

import base64
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.moment.matrix import METRICS, MOST_ROWS, SCALES, Metric, matrix


def _read(text: str) -> list[int]:
    return list(base64.b64decode(text))


@pytest.mark.parametrize("metric", METRICS)
@given(st.floats(1.0, 1e6))
def test_a_code_says_its_value_to_half_a_step(metric: Metric, times: float) -> None:
    scale = SCALES[metric]
    value = scale.lowest * min(times, scale.ratio**250)
    code = int(scale.codes(np.array([value]))[0])
    assert abs(math.log(scale.lowest * scale.ratio ** (code - 2) / value)) <= 0.51 * math.log(scale.ratio)


def test_not_measured_and_next_to_nothing_differ() -> None:
    assert SCALES["spread"].codes(np.array([np.nan, 0.0, -5.0, 1e30])).tolist() == [0, 1, 1, 255]


def _matrix(names: list[str], cells: dict[tuple[int, int], float]) -> object:
    src, dst = (np.array([cell[side] for cell in cells], np.intp) for side in (0, 1))
    return matrix("spread", names, src, dst, np.array(list(cells.values())))


def test_rows_are_sources_and_what_was_not_probed_stays_so() -> None:
    made = matrix("p50", ["a", "b"], np.array([0]), np.array([1]), np.array([1_000.0])).as_json()
    codes = _read(made["codes"])
    assert [code > 0 for code in codes] == [False, True, False, False]
    assert made["worst"] == [{"src": "a", "dst": "b", "value": 1000.0}]


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_changes_make_the_next_out_of_the_one_before(count: int, rng: object) -> None:
    random = np.random.default_rng(rng.randrange(2**32))  # type: ignore[attr-defined]
    names = [f"l{i}" for i in range(count)]

    def some() -> object:
        src, dst = random.integers(0, count, (2, count))
        return matrix("spread", names, src, dst, random.uniform(0, 1e6, count))

    before, after = some(), some()
    changed = after.since(before)  # type: ignore[attr-defined]
    codes = before.codes.ravel().copy()  # type: ignore[attr-defined]
    codes[changed["cells"]] = _read(changed["codes"])
    assert (codes == after.codes.ravel()).all()  # type: ignore[attr-defined]


def test_other_rows_are_told_whole() -> None:
    none = np.zeros(0, np.intp)
    one, other = (matrix("spread", names, none, none, np.zeros(0)) for names in (["a"], ["b"]))
    assert other.since(one) is None


def test_many_leaves_are_shown_in_blocks_by_the_largest() -> None:
    count = 3 * MOST_ROWS
    names = [f"l{i}" for i in range(count)]
    src, dst = np.array([0, 1, count - 1]), np.array([2, 1, count - 1])
    made = matrix("p50", names, src, dst, np.array([100.0, 9_000.0, 50.0]))
    assert made.codes.shape == (MOST_ROWS, MOST_ROWS)
    assert made.members is not None
    assert made.members[0] == ["l0", "l1", "l2"]
    largest = SCALES["p50"].codes(np.array([9_000.0]))[0]
    assert made.codes[0, 0] == largest
    assert made.codes[-1, -1] > 0
    assert int((made.codes > 0).sum()) == 2
