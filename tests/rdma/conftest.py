"""One virtual machine for all tests of this tier: it runs every scenario, the tests look at what happened."""

from typing import Any

import need
import pytest

from tools.rdma import machine


@pytest.fixture(scope="session")
def report() -> dict[str, Any]:
    """What happened in the machine, by scenario."""
    need.root("as the virtual machine reads the whole file system")
    if lacks := machine.lacking():
        need.missing(", ".join(lacks))
    return machine.run()
