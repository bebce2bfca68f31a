"""A queue pair below the verbs shim fails with its path; those that are connected anew take paths that live."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cwdp.errors import LabError
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.scenarios.shim_agents import Served, serve
from tools.rdma.testbed.fabric import RdmaHost, silent
from tools.rdma.testbed.programs import Outcome, Running, Transfer, started
from tools.rdma.testbed.verbs_agents import spread
from tools.waiting import wait_for

FAILS = Transfer("pyverbs", 4, messages=1_000, ack_timeout="17", retries=2)
"""It gives up 1.6 s after its path has fallen silent, or somewhat later."""

ANEW = Transfer("as_nccl", 4, messages=96, queue_pairs=4)

_CONNECTED_S, _POLL_S = 180.0, 0.05


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Cut the link that a queue pair takes until it has failed; connect others while the link is dead."""
    with serve([bench.source, bench.target], bench) as served:
        for one, other in served.ends:
            served.agents[one.name].spread([spread(one, other, list(served.ways[one.name].values()))])
        spines = {sport: spine for spine, sport in served.ways[bench.source.name].items()}
        with started(FAILS, bench.source, bench.target, served.shim(FAILS.program)) as running:
            dead = spines[_sport(served, running)]
            with silent(f"l1-{dead}"):
                failed = running.finish()
                _tell_down(dead, served)
                with recorded(bench) as record:
                    record.update({"dead": dead, "failed": asdict(failed)} | asdict(_anew(served)))
    return record


def _tell_down(spine: str, served: Served) -> None:
    """Have the agents hear what those that watch paths would say of a dead spine."""
    for one, other in served.ends:
        path = (str(other.ipv4), served.ways[one.name][spine])
        served.agents[one.name].lose(one.ifname, [path])


def _sport(served: Served, running: Running) -> int:
    """The port of the queue pair that sends, once it is connected.

    Raises:
        LabError: it never was.
    """
    sender = served.agents[served.bench.source.name]
    wait_for(lambda: sender.queue_pairs() or not running.is_running(), _CONNECTED_S, poll_s=_POLL_S)
    for qp in sender.queue_pairs():
        if qp.sport is not None:
            return qp.sport
    raise LabError("the queue pair was never connected", running.finish().client_output)


def _anew(served: Served) -> Outcome:
    bench = served.bench
    with started(ANEW, bench.source, bench.target, served.shim(ANEW.program)) as running:
        return running.finish()
