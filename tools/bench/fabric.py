"""What knowing the fabric costs the manager, at fleet size, in simulation."""

from collections.abc import Iterator

from tools.bench.figures import Figure, figure
from tools.sim.discovery import discover

NICS, PEERS, PORTS, SPINES = 8_192, 10, 8, 64
SEED = 30
TOLD_EVERY_S = 35.0


def figures() -> Iterator[Figure]:
    """Routes of 8,192 NICs; half a minute."""
    result = discover(NICS, PEERS, PORTS, SPINES, SEED)
    name = f"fabric.{NICS}_nics_{result.paths}_paths"
    share = result.hear_again_s / TOLD_EVERY_S
    yield figure(f"{name}.routes_after_a_dead_link", result.rebuild_s, "s of one core", result.build_s, None)
    yield figure(f"{name}.census", result.census_s, "s of one core", None, None)
    yield figure(f"{name}.hear_all_at_first", result.hear_s, "s of one core", None, None)
    yield figure(f"{name}.hear_what_is_known", share, "of one core", f"all told every {TOLD_EVERY_S} s", None)
