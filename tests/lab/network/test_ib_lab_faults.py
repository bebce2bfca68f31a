"""`cwdp lab run ib-faults` from end to end: a fault of each kind, named by a manager that an agent's reader tells."""

import need
import pytest
from conftest import lab_name

from tools.experiments.ib_faults.model import KINDS
from tools.experiments.ib_faults.run import run_ib_faults
from tools.ib.lab import programs, state
from tools.ib.lab.state import Spec
from tools.ib.simulated import LIBRARY

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_a_fault_of_each_kind_is_named_and_nothing_else() -> None:
    for what in (*programs.NEEDED, LIBRARY):
        need.installed(what)
    name = lab_name("ibf")
    result = run_ib_faults(Spec(name=name), len(KINDS), 3, quiet_s=3.0, within_s=60.0)
    assert [case["fault"] for case in result["cases"]] == list(KINDS)
    assert result["right"] == len(KINDS), result["cases"]
    assert result["alarms"] == []
    assert not programs.running(name)
    assert state.load(name) is None
