"""Sums over spans are those of the windows that are kept, whatever comes, moves or is forgotten."""

import numpy as np
import pytest

from manager.faults.probe_history import ProbeHistory


@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_if_all_windows_were_kept_in_a_list(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spans = sorted(rng.choice(np.arange(1, 30), 4, replace=False).tolist())
    rows = int(rng.integers(1, 9))
    history = ProbeHistory(rows, spans)
    sent, lost = (np.zeros((spans[-1], rows)) for _ in range(2))
    for _ in range(120):
        match rng.integers(0, 12):
            case 0:
                gone = rng.random(rows) < 0.3
                history.forget(gone)
                sent[:, gone] = lost[:, gone] = 0
            case 1:
                now = max(1, rows + int(rng.integers(-2, 4)))
                moved = rng.random(now) < 0.2
                moved[rows:] = True
                history.carry_on(moved)
                sent, lost = (
                    np.where(moved, 0, np.pad(each[:, :now], ((0, 0), (0, max(0, now - rows)))))
                    for each in (sent, lost)
                )
                rows = now
            case _:
                latest = rng.integers(0, 9, rows).astype(float)
                dropped = np.minimum(latest, rng.integers(0, 3, rows))
                history.add(latest, dropped, np.full(rows, 7.0, np.float32))
                sent, lost = np.vstack([sent[1:], latest]), np.vstack([lost[1:], dropped])
        until = [history.sent_over(windows).astype(int) for windows in range(spans[-1], -1, -1)]
        assert np.array_equal(-np.diff(until, axis=0), sent)
        assert np.array_equal(history.lost_of(np.arange(rows), spans[-1]), lost)
        some = np.flatnonzero(rng.random(rows) < 0.5)
        for place, span in enumerate(spans):
            assert np.array_equal(history.sent_over(span), sent[-span:].sum(axis=0))
            assert np.array_equal(history.lost_of(some, span), lost[-span:, some])
            assert np.array_equal(history.sent_sums[place], sent[-span:].sum(axis=0))
            assert np.array_equal(history.lost_sums[place], lost[-span:].sum(axis=0))


def test_queues_of_some_rows_are_kept_window_by_window_until_they_move() -> None:
    history = ProbeHistory(3, (2, 4))
    for window in range(6):
        history.add(np.ones(3), np.zeros(3), np.array([window, 10 + window, 20 + window], np.float32))
    assert history.queued_ns_of(np.array([2, 0])).T.tolist() == [[22, 23, 24, 25], [2, 3, 4, 5]]
    history.carry_on(np.array([True, False, False]))
    assert np.isnan(history.queued_ns_of(np.array([0]))).all()
    assert history.queued_ns_of(np.array([1]))[:, 0].tolist() == [12, 13, 14, 15]
