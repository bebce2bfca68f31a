"""A manager that gives commands one answer and notes what it was asked."""

from types import ModuleType
from typing import Any

import pytest


class Answering:
    """In the place of `cwdp.cli.client.ManagerClient`."""

    asked: list[tuple[str, Any]]
    answer: Any

    def __init__(self, _url: str | None) -> None:
        pass

    def get(self, path: str, query: Any = None) -> Any:
        Answering.asked.append((path, query))
        return Answering.answer


def answering(monkeypatch: pytest.MonkeyPatch, *commands: ModuleType, answer: Any = None) -> type[Answering]:
    """Have the commands of some modules ask it."""
    for command in commands:
        monkeypatch.setattr(command, "ManagerClient", Answering)
    Answering.asked, Answering.answer = [], answer
    return Answering
