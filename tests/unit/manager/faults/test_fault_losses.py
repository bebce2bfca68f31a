"""The explanation of losses is the same whether or not classes are ruled out before all are held against each other."""

import numpy as np
import pytest
from numpy.typing import NDArray

from manager.faults import losses
from manager.faults.losses import LATE_WINDOWS, SPANS, best_explanation

Floats = NDArray[np.float64]


class _Fleet:
    """Random probes of rows, each of which meets the causes of some classes; one class may lose more than others."""

    def __init__(self, rng: np.random.Generator) -> None:
        rows, classes = int(rng.integers(5, 400)), int(rng.integers(1, 60))
        self.met = rng.random((classes, rows)) < rng.uniform(0.01, 0.3)
        loss = np.full(rows, rng.choice([0.0, 1e-4, 1e-2]))
        loss[self.met[0]] += rng.choice([0.0, 0.003, 0.03, 0.3, 1.0])
        self.sent = rng.poisson(rng.choice([0.3, 3.0]), (SPANS[-1], rows))
        self.lost = rng.binomial(self.sent, np.minimum(loss, 1.0))

    def totals(self, place: int) -> tuple[float, float]:
        sent, lost = (float(each[-SPANS[place] :].sum()) for each in (self.sent, self.lost))
        return sent, lost

    def lost_by_class(self, place: int) -> Floats:
        return np.asarray(self.met @ self.lost[-SPANS[place] :].sum(axis=0), np.float64)

    def sent_by_class(self, place: int, classes: NDArray[np.intp] | None = None) -> Floats:
        sent = np.asarray(self.met @ self.sent[-SPANS[place] :].sum(axis=0), np.float64)
        return sent if classes is None else sent[classes]

    def windows_with_loss(self, number: int, span: int) -> int:
        return int(self.lost[-span:, self.met[number]].any(axis=1).sum())

    def of_late(self, number: int) -> tuple[float, float]:
        sent, lost = (float(each[-LATE_WINDOWS:, self.met[number]].sum()) for each in (self.sent, self.lost))
        return sent, lost


def test_what_is_ruled_out_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    fleets = [_Fleet(rng) for _ in range(400)]
    priors = [rng.choice([0.0, -2.0], len(fleet.met)) for fleet in fleets]
    found = [best_explanation(fleet, prior) for fleet, prior in zip(fleets, priors, strict=True)]
    monkeypatch.setattr(losses, "_may_suffice", lambda *_: True)
    assert found == [best_explanation(fleet, prior) for fleet, prior in zip(fleets, priors, strict=True)]
    assert 20 < sum(each is not None for each in found) < 380


def test_where_hardly_anything_is_lost_only_losses_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _Fleet(np.random.default_rng(2))
    fleet.lost[:] = 0
    fleet.lost[-1, 0] = fleet.lost[-2, 1] = 1
    monkeypatch.setattr(fleet, "sent_by_class", None)
    assert best_explanation(fleet, np.zeros(len(fleet.met))) is None
    assert best_explanation(fleet, np.zeros(0)) is None


@pytest.mark.parametrize(("died", "windows"), [(3, 3), (5, 6), (12, 12), (20, 20), (40, 40)])
def test_a_link_that_died_is_judged_since_it_did(died: int, windows: int) -> None:
    """Over a longer span it would have lost a part of its probes."""
    fleet = _Fleet(np.random.default_rng(3))
    fleet.lost[:] = 0
    fleet.lost[-died:, fleet.met[0]] = fleet.sent[-died:, fleet.met[0]]
    found = best_explanation(fleet, np.zeros(len(fleet.met)))
    assert found is not None
    assert (found.number, found.windows) == (0, windows)
    assert found.loss > 0.75
    assert found.of_late == 1.0


def test_a_link_that_loses_some_all_along_is_judged_by_all_windows() -> None:
    rng = np.random.default_rng(3)
    fleet = _Fleet(rng)
    fleet.lost = rng.binomial(fleet.sent, np.where(fleet.met[0], 0.3, 0.0))
    found = best_explanation(fleet, np.zeros(len(fleet.met)))
    assert found is not None
    assert (found.number, found.windows) == (0, SPANS[-1])
