"""What knowing the fabric costs the manager, at fleet size, in simulation."""

import time
from collections.abc import Iterator

import numpy as np

from manager.fabric.routes import Routes
from tools.bench.figures import Figure, figure
from tools.sim.discovery import discover
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import Bench

NICS, PEERS, PORTS, SPINES = 8_192, 10, 8, 64
SEED = 30
TOLD_EVERY_S = 35.0
LINK_SHAPE = Shape(leaves=32, spines=32, hosts_per_leaf=32)


def figures() -> Iterator[Figure]:
    """Routes of 8,192 NICs; half a minute."""
    result = discover(NICS, PEERS, PORTS, SPINES, SEED)
    name = f"fabric.{NICS}_nics_{result.paths}_paths"
    share = result.hear_again_s / TOLD_EVERY_S
    yield figure(f"{name}.routes_after_a_dead_link", result.rebuild_s, "s of one core", result.build_s, None)
    yield figure(f"{name}.path_counts", result.path_counts_s, "s of one core", None, None)
    yield figure(f"{name}.hear_all_at_first", result.hear_s, "s of one core", None, None)
    yield figure(f"{name}.hear_what_is_known", share, "of one core", f"all told every {TOLD_EVERY_S} s", None)
    yield from link_model_figures()


def link_model_figures() -> Iterator[Figure]:
    """What a change of paths costs where windows are worked off: in a thread, and in the loop."""
    bench = Bench(LeafSpine(LINK_SHAPE, np.random.default_rng(SEED)))
    for _ in bench.run(3, Trouble()):
        pass
    routes = bench.routes
    known = dict(routes.paths)
    for path in list(known)[:3]:
        del known[path]
    took_s = [time.process_time()]
    due = bench.watch.due(Routes(routes.version + 1, routes.links, known))
    assert due is not None
    took_s.append(time.process_time())
    model = due.make()
    took_s.append(time.process_time())
    bench.watch.take(model, bench.time_s)
    took_s.append(time.process_time())
    begin_s, make_s, take_s = np.diff(took_s).tolist()
    nics = LINK_SHAPE.leaves * LINK_SHAPE.hosts_per_leaf
    name = f"links.{nics}_nics_{len(routes.links)}_links.paths_change"
    yield figure(f"{name}.in_a_thread", make_s, "s of one core", None, None)
    yield figure(f"{name}.in_the_loop", begin_s + take_s, "s of one core", None, 0.1)
