"""One virtual machine for all tests of this tier: it runs every scenario, the tests look at what happened."""

from typing import Any

import pytest

from tools.rdma import machine
from tools.rdma.machine import MachineError


@pytest.fixture(scope="session")
def report() -> dict[str, Any]:
    """What happened in the machine, by scenario."""
    try:
        machine.require()
    except MachineError as error:
        pytest.skip(error.message)
    return machine.run()
