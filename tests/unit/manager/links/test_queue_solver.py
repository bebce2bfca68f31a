"""Queues from delays: the solver against an independent one, and links that cannot be told apart."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse import csr_array

from manager.links import solver
from manager.links.matrix import alike, stages
from manager.links.solver import Solver


def _paths(rng: np.random.Generator) -> csr_array:
    """Random leaf-spine paths over numbered links."""
    leaves, spines, hosts = (int(n) for n in rng.integers(2, 6, 3))
    nics = leaves * hosts
    rows = np.zeros((0, 2 * nics + 2 * leaves * spines))
    for source in range(nics):
        for target in rng.integers(0, nics, 12).tolist():
            row = np.zeros(rows.shape[1])
            row[[source, nics + target]] = 1
            a, b, spine = source // hosts, target // hosts, int(rng.integers(spines))
            if a != b:
                row[[2 * nics + a * spines + spine, 2 * nics + (leaves + b) * spines + spine]] = 1
            rows = np.vstack([rows, row])
    return csr_array(rows)


def _objective(
    matrix: csr_array, y: NDArray[np.float64], w: NDArray[np.float64], x: NDArray[np.float64]
) -> float:
    return float((w * (y - matrix @ x) ** 2).sum())


@pytest.mark.parametrize("seed", range(25))
def test_it_comes_to_the_minimum_that_an_active_set_method_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = _paths(rng)
    truth = np.where(rng.random(matrix.shape[1]) < 0.3, rng.exponential(1e6, matrix.shape[1]), 0.0)
    y = matrix @ truth + rng.exponential(5e3, matrix.shape[0])
    w = rng.integers(0, 4, matrix.shape[0]).astype(np.float64)
    got = Solver(matrix, stages(matrix)).solve(
        y, w, np.zeros(matrix.shape[1]), penalty=0.0, sweeps=5_000, tolerance=1e-6
    )
    best, _ = nnls(matrix.toarray() * np.sqrt(w)[:, None], y * np.sqrt(w))
    assert (got >= 0).all()
    assert _objective(matrix, y, w, got) == pytest.approx(_objective(matrix, y, w, best), rel=1e-5, abs=1.0)


@pytest.mark.parametrize("seed", range(25))
def test_with_a_penalty_too_it_is_the_minimum_wherever_it_starts(seed: int) -> None:
    """By the conditions of Karush, Kuhn and Tucker: no coordinate can be changed for the better."""
    rng = np.random.default_rng(seed)
    matrix = _paths(rng)
    links = matrix.shape[1]
    truth = np.where(rng.random(links) < 0.1, rng.exponential(1e6, links), 0.0)
    y = np.asarray(matrix @ truth) + np.where(rng.random(matrix.shape[0]) < 0.1, 300.0, 0.0)
    w = rng.integers(0, 4, matrix.shape[0]).astype(np.float64)
    solver = Solver(matrix, stages(matrix))
    costs = []
    for start in (np.zeros(links), np.where(rng.random(links) < 0.1, 1e5, 0.0)):
        x = solver.solve(y, w, start, penalty=500.0, sweeps=20_000, tolerance=1e-7)
        seen = matrix.T @ w > 0
        gain = (matrix.T @ (w * (y - matrix @ x)) - 500.0)[seen]
        assert (gain <= 1.0).all()
        assert gain[x[seen] > 0] == pytest.approx(0.0, abs=1.0)
        assert not x[~seen].any()
        costs.append(_objective(matrix, y, w, x) / 2 + 500.0 * x.sum())
    assert costs[1] == pytest.approx(costs[0], rel=1e-6, abs=1.0)


def test_where_nothing_is_queued_nothing_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_Products", None)
    matrix = _paths(np.random.default_rng(1))
    rows, links = matrix.shape
    x = Solver(matrix, stages(matrix)).solve(
        np.full(rows, 9.0), np.ones(rows), np.zeros(links), penalty=1e4, sweeps=9, tolerance=0.0
    )
    assert not x.any()


@pytest.mark.parametrize("seed", range(25))
def test_no_path_crosses_two_links_of_a_stage_and_every_link_has_one(seed: int) -> None:
    matrix = _paths(np.random.default_rng(seed))
    groups = stages(matrix)
    assert sorted(np.concatenate(groups).tolist()) == list(range(matrix.shape[1]))
    for group in groups:
        assert matrix[:, group].sum(axis=1).max() <= 1


def test_what_no_path_tells_of_is_zero() -> None:
    matrix = csr_array(np.array([[1.0, 0.0], [1.0, 0.0]]))
    y, w = np.array([3.0, 5.0]), np.ones(2)
    assert Solver(matrix, stages(matrix)).solve(
        y, w, np.array([0.0, 9.0]), penalty=0.0, sweeps=9, tolerance=0.0
    ).tolist() == [
        4.0,
        0.0,
    ]


def test_the_penalty_takes_away_small_queues() -> None:
    matrix = csr_array(np.eye(2))
    got = Solver(matrix, stages(matrix)).solve(
        np.array([3.0, 9.0]), np.ones(2), np.zeros(2), penalty=4.0, sweeps=9, tolerance=0.0
    )
    assert got.tolist() == [0.0, 5.0]


def test_columns_that_are_the_same_are_found() -> None:
    matrix = csr_array(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 1]]))
    assert alike(matrix).tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_the_least_of_the_rows_over_some_columns_is_told_with_what_was_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = _paths(rng)
    has, columns = matrix.toarray() > 0, np.flatnonzero(matrix.sum(axis=0) > 0)
    some, values = rng.permutation(columns)[:4], rng.random(len(has))
    solver = Solver(matrix, stages(matrix))
    assert solver.least(values, some).tolist() == [values[has[:, column]].min() for column in some]
    assert solver.least(values, some[:0]).tolist() == []
    weight = rng.integers(0, 2, len(has)).astype(np.float64)
    solver.solve(values, weight, np.zeros(has.shape[1]), penalty=0.0, sweeps=1, tolerance=0.0)
    assert np.array_equal(solver.seen, has[weight > 0].any(axis=0))
