"""A host whose way in is slow for long: its clock stays where it was, and no other's bound pays for it.

Longer than floors are remembered, and with a manager that takes over meanwhile and has seen none of them.
"""

import numpy as np
import pytest

from tools.sim.fleet.probes import FleetOptions, SlowWay
from tools.sim.fleet.simulation import FleetSimulation

SLOW, FROM_S, UNTIL_S = 2, 8.0, 52.0


@pytest.mark.parametrize(
    ("queue_ns", "takeovers_s", "hosts"), [(150e6, (20.0,), 6), (1e6, (20.0, 44.0), 8), (0.3e6, (), 10)]
)
def test_a_queue_that_stands_moves_no_clock(
    queue_ns: float, takeovers_s: tuple[float, ...], hosts: int
) -> None:
    slow = SlowWay(host=SLOW, queue_ns=queue_ns, from_s=FROM_S, until_s=UNTIL_S)
    options = FleetOptions(hosts=hosts, seconds=UNTIL_S, slow=slow)
    result = FleetSimulation(options, takeovers_s=takeovers_s).run()
    error, bound = np.abs(result.error_ns), result.bound_ns
    stands = result.time_s > FROM_S
    others = np.arange(hosts) != SLOW
    assert np.mean(error[stands, SLOW] > bound[stands, SLOW]) < 0.05
    assert np.nanmax(error[stands, SLOW]) < 5_000
    assert np.nanmax(error[stands][:, others]) < 1_000
    assert np.nanmedian(bound[stands][:, others]) < 2 * np.nanmedian(
        bound[(result.time_s > FROM_S - 2) & ~stands][:, others]
    )
