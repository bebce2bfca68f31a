"""Programs with the verbs shim, the agents' process for it, and no steering by a dataplane: where queue pairs go.

A stand-in for the manager orders over which spines queue pairs are to be connected.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.programs import Transfer, started
from tools.rdma.testbed.shimmed import Environment, with_shim
from tools.rdma.testbed.verbs_agents import Agents, Ports, ports_by_spine, serving, socket_of, spread
from tools.waiting import wait_for

PROGRAMS = (
    Transfer("ib_write_bw", 4, messages=96),
    Transfer("ibv_rc_pingpong", 4, messages=100, size=16384),
    Transfer("pyverbs", 4, messages=96),
    Transfer("as_nccl", 4, messages=96),
)

_CONNECTED_S, _POLL_S = 180.0, 0.05


@dataclass(frozen=True)
class Served:
    """What the parts have in common.

    Attributes:
        folder: of the agents' sockets.
        ways: over each spine, from the source and from the target, by their names.
    """

    bench: Bench
    folder: Path
    agents: Agents
    ways: Mapping[str, Ports]

    @property
    def ends(self) -> tuple[tuple[RdmaHost, RdmaHost], ...]:
        """Each end and its peer, the source first."""
        return (self.bench.source, self.bench.target), (self.bench.target, self.bench.source)

    def shim(self, program: str) -> Environment:
        """What has a program load the shim, with the agent of its host."""
        return with_shim(program, partial(socket_of, self.folder))


@contextmanager
def serve(hosts: Sequence[RdmaHost], bench: Bench) -> Iterator[Served]:
    """Have agents' processes serve these hosts' programs, and find the ways between the source and the target."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        agents = stack.enter_context(serving(hosts, folder))
        ways = {
            bench.source.name: ports_by_spine(bench.counters, bench.source, bench.target, "l2"),
            bench.target.name: ports_by_spine(bench.counters, bench.target, bench.source, "l1"),
        }
        yield Served(bench, folder, agents, ways)


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Go through the programs; what kept one from running is under its `error`."""
    with serve([bench.source, bench.target], bench) as served:
        return {
            transfer.program: _attempt(transfer.program, partial(run_program, transfer, spine, served))
            for transfer, spine in zip(PROGRAMS, served.ways[bench.source.name], strict=True)
        }


def run_program(transfer: Transfer, spine: str, served: Served) -> dict[str, Any]:
    """Have both ends of a program's queue pair be connected over one spine."""
    bench, agents = served.bench, served.agents
    wanted = {one.name: served.ways[one.name][spine] for one, _ in served.ends}
    for one, other in served.ends:
        agents[one.name].spread([spread(one, other, [wanted[one.name]])])
    told: dict[str, list[dict[str, Any]]] = {}

    def are_told() -> bool:
        for name in wanted:
            told[name] = told.get(name) or [qp._asdict() for qp in agents[name].queue_pairs()]
        return all(told.values()) or not running.is_running()

    with recorded(bench) as record:
        record.update({"spine": spine, "sports": wanted})
        with started(transfer, bench.source, bench.target, served.shim(transfer.program)) as running:
            wait_for(are_told, _CONNECTED_S, poll_s=_POLL_S)
            record.update({"queue_pairs": told} | asdict(running.finish()))
    return record


def _attempt(name: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began_s = time.monotonic()
    try:
        return part()
    except CwdpError as error:
        return {"error": str(error)}
    finally:
        print(f"  {name}: {time.monotonic() - began_s:.0f} s", flush=True)
