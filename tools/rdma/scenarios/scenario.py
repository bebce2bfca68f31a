"""What every scenario is given, and what is recorded of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tools.rdma.outside import WayOut
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.fabric import RdmaHost

Scenario = Callable[["Bench"], dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """Two hosts below different leaves, what is counted, and the way to a manager."""

    source: RdmaHost
    target: RdmaHost
    counters: Counters
    way_out: WayOut


@contextmanager
def recorded(bench: Bench) -> Iterator[dict[str, Any]]:
    """Give a record, to which is added how long it took and what was counted meanwhile."""
    record: dict[str, Any] = {}
    before, began_s = bench.counters.settled(), time.monotonic()
    yield record
    record["seconds"] = time.monotonic() - began_s
    record["counts"] = asdict(bench.counters.settled().since(before))
