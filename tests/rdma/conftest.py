"""The virtual machine of this tier: it runs the scenarios, the tests look at what happened."""

from typing import Any

import need
import pytest

from tools.rdma import machine

FEW_FILES = 3
MOST_BY_NAME = 3
"""Scenarios for each of which the machine is booted, which takes minutes."""


class Scenarios(dict[str, Any]):
    """What happened in the machine, by scenario; one that is not known yet is run, and for many in a row all are, once."""

    def __init__(self, *, all_at_once: bool) -> None:
        super().__init__(machine.run() if all_at_once else {})
        self._has_all, self._by_name = all_at_once, 0

    def __missing__(self, name: str) -> Any:
        if self._by_name < MOST_BY_NAME:
            self._by_name += 1
            self |= machine.run(beginning=name)
        elif not self._has_all:
            self._has_all = True
            self |= machine.run()
        return self[name] if name in self else pytest.fail(f"the machine did not come to {name!r}")


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> dict[str, Any]:
    """All scenarios, run in one machine; for the tests of a few files only theirs."""
    need.root("as the virtual machine reads the whole file system")
    if lacks := machine.lacking():
        need.missing(", ".join(lacks))
    return Scenarios(all_at_once=len({item.path for item in request.session.items}) > FEW_FILES)
