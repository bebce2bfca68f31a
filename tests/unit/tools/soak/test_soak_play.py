"""Troubles are made in their time and always undone, whatever goes wrong with one of them or ends the soak."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tools.soak import play
from tools.soak.play import Play
from tools.soak.troubles import ABSENCE, Trouble

SCHEDULE = [
    Trouble("silent", "l1-s1", 0.05, 0.2),
    Trouble(ABSENCE, "b1", 0.05, 0.6),
    Trouble("manager_killed", "m1", 0.1, 0.2),
    Trouble("agent_killed", "h1", 0.1, 0.3),
    Trouble("loss", "l1-s2", 0.3, 0.5),
]


class Stage:
    """A stage without a lab."""

    def __init__(self) -> None:
        self.start_s = time.monotonic()
        self.stop = threading.Event()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.start_s


class Made:
    """Notes what begins and ends; some fail."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.begun: list[str] = []
        self.ended: list[str] = []

    @contextmanager
    def __call__(self, _: object, trouble: Trouble) -> Iterator[None]:
        if trouble.kind == self.failing:
            raise ValueError("no such thing")
        self.begun.append(trouble.kind)
        try:
            yield
        finally:
            self.ended.append(trouble.kind)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "GLANCE_S", 0.02)


def played(monkeypatch: pytest.MonkeyPatch, made: Made, schedule: Sequence[Trouble] = SCHEDULE) -> Play:
    monkeypatch.setattr(play, "made", made)
    return Play(Stage(), schedule)


def nothing_wrong() -> None:
    """As watches say."""


def test_every_trouble_is_made_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    one = played(monkeypatch, made)
    one.until(0.8, nothing_wrong)
    assert sorted(made.begun) == sorted(made.ended) == sorted(each.kind for each in SCHEDULE)
    assert made.begun.index("silent") < made.begun.index("loss")
    assert one.errors == []
    for trouble in one.done:
        (wanted,) = [each for each in SCHEDULE if each.kind == trouble.kind]
        assert trouble.begin_s >= wanted.begin_s
        assert trouble.end_s >= wanted.end_s


def test_one_that_cannot_be_made_is_told_and_the_next_of_its_track_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(failing="silent")
    one = played(monkeypatch, made)
    one.until(0.8, nothing_wrong)
    assert one.errors == ["silent l1-s1: no such thing"]
    assert "loss" in made.ended


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_ends_it_undoes_all(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    one = played(monkeypatch, made, [*SCHEDULE[:-1], Trouble("loss", "l1-s2", 29.0, 30.0)])

    def end() -> None:
        if len(made.begun) >= 3:
            raise error

    with pytest.raises(error):
        one.until(30.0, end)
    assert sorted(made.begun) == sorted(made.ended)
    assert "loss" not in made.begun
