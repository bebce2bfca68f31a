"""The virtual machine of this tier: it runs the scenarios, the tests look at what happened."""

from typing import Any

import need
import pytest

from tools.rdma import machine

FEW_FILES = 3


class Scenarios(dict[str, Any]):
    """What happened in the machine, by scenario; for one that is not known yet the machine is booted."""

    def __missing__(self, name: str) -> Any:
        self |= machine.run(beginning=name)
        return self[name] if name in self else pytest.fail(f"the machine ended without {name!r}")


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> dict[str, Any]:
    """All scenarios, run in one machine; for the tests of a few files only theirs."""
    need.root("as the virtual machine reads the whole file system")
    if lacks := machine.lacking():
        need.missing(", ".join(lacks))
    is_few = len({item.path for item in request.session.items}) <= FEW_FILES
    return Scenarios({} if is_few else machine.run())
