"""Clocks whose rates go on changing while nobody leads: who leads next claims no more than it knows."""

import numpy as np
import pytest

from tools.sim.clocks.manoeuvres import temperature
from tools.sim.fleet.probes import FleetOptions
from tools.sim.fleet.simulation import FleetSimulation

GONE_S, SILENT_S, SECONDS = 10.9, 8.0, 26.0


@pytest.mark.parametrize("stood_by", [True, False])
def test_bounds_hold_once_another_manager_leads(stood_by: bool) -> None:
    options = FleetOptions(hosts=4, peers=2, seconds=SECONDS, seed=1)
    comes_s = GONE_S + SILENT_S
    heated = temperature(2e-9, 0.2, 60.0)
    result = FleetSimulation(options, heated, (comes_s,), silent_s=SILENT_S, stood_by=stood_by).run()
    after = result.time_s >= comes_s
    outside = np.abs(result.error_ns) > result.bound_ns
    assert np.mean(outside[after]) < 0.005
    assert np.median(result.bound_ns[result.time_s >= comes_s + 4]) < 1_000
