"""A thousand queue pairs of one path below the verbs shim, ordered off it when it falls silent.

Soft-RoCE can only drain, and what a dead path has swallowed never drains, so agents do not move its queue pairs for a failure.
Here a stand-in for them does, with queue pairs that have nothing under way. Beside it: how long the kernel takes for the same
calls of a program that has not loaded the shim.
"""

import select
import socket
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.errors import LabError
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import Moved, QpPath, Route, Source
from tools.rdma.scenarios.drained import sending
from tools.rdma.scenarios.scenario import Bench, recorded
from tools.rdma.testbed.arrivals import arriving
from tools.rdma.testbed.fabric import RdmaHost, silent
from tools.rdma.testbed.shimmed import with_shim
from tools.rdma.testbed.told import Told, ask, begun
from tools.rdma.testbed.verbs_agents import ports_by_spine, socket_of
from tools.shim import FakeAgent
from tools.shim.agent import Peer

QUEUE_PAIRS = 1_000
ROUNDS = 10
"""How often all are moved, to and fro between two paths that live."""

MESSAGE_BYTES = 256

DEADLINE_NS = 60_000_000_000
"""Of an order, from when it is given: the machine is emulated."""

_START_S, _QUIET_S, _ANSWER_S = 180.0, 1.0, 120.0
_SEND_BYTES = 4 << 20
_SO_SNDBUFFORCE = 32


class Round(NamedTuple):
    """All queue pairs of both ends, moved once.

    Attributes:
        done_ms: from the first order until each is moved, as far as they are.
        each_us: how long each takes by itself.
        errors: what comes of the orders, by errno.
    """

    done_ms: list[float]
    each_us: list[float]
    errors: Counter[int]


def run(_hosts: Sequence[RdmaHost], bench: Bench) -> dict[str, Any]:
    """Have the queue pairs moved by a program of its own, then by orders while their path is silent."""
    record: dict[str, Any] = {"queue_pairs": QUEUE_PAIRS, "kernel": _by_the_program(bench)}
    ways = (
        ports_by_spine(bench.counters, bench.source, bench.target, "l2"),
        ports_by_spine(bench.counters, bench.target, bench.source, "l1"),
    )
    first, second, third, *_ = ways[0]
    before, after, between = ([way[spine] for way in ways] for spine in (first, second, third))
    with _connected(bench, before) as (ends, peers, paths), ExitStack() as stack:
        counted = [
            stack.enter_context(arriving(host, sports))
            for host, sports in zip(
                (bench.target, bench.source), zip(before, after, strict=True), strict=True
            )
        ]
        record |= {"from": first, "to": second, "sports": {"before": before, "after": after}}
        record["before"] = _written(ends, bench)
        with silent(f"l1-{first}"):
            record["moved"] = together(
                [_moved(peers, paths, sports) for sports in (between, after) * (ROUNDS // 2)]
            )
            record["sending"] = [count for (count,) in ask(ends, "states")]
            record["after"] = _written(ends, bench)
        record["arrived"] = [{str(sport): n for sport, n in arrived().items()} for arrived in counted]
    return record


def _by_the_program(bench: Bench) -> dict[str, Any]:
    """How long SQD, another path and RTS take for each queue pair of both ends, without the shim."""
    with begun(bench.source, bench.target, QUEUE_PAIRS, MESSAGE_BYTES) as ends:
        _await_connected(ends)
        return together([_drained(ends, flow_label + 1) for flow_label in range(ROUNDS)])


def _drained(ends: Sequence[Told], flow_label: int) -> Round:
    took_ns = ask(ends, f"drain {flow_label}")
    return Round(
        [ns / 1e6 for each in took_ns for ns in accumulate(each)],
        [ns / 1e3 for each in took_ns for ns in each],
        Counter({0: sum(map(len, took_ns))}),
    )


@contextmanager
def _connected(
    bench: Bench, sports: Sequence[int]
) -> Iterator[tuple[Sequence[Told], list[Peer], list[list[QpPath]]]]:
    """Both ends, the source first, connected over these ports: the programs, their shims, and their queue pairs.

    Raises:
        LabError: they are not connected, or over other ports.
    """
    hosts = bench.source, bench.target
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        agents = [stack.enter_context(FakeAgent(socket_of(folder, host))) for host in hosts]
        environment = with_shim("as_nccl", partial(socket_of, folder))
        ends = stack.enter_context(begun(*hosts, QUEUE_PAIRS, MESSAGE_BYTES, environment))
        peers = [agent.accept(_START_S) for agent in agents]
        for peer, one, other, sport in zip(peers, hosts, reversed(hosts), sports, strict=True):
            peer.connection.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BYTES)
            peer.give(_table(one, other, sport))
        _await_connected(ends)
        for peer in peers:
            peer.hear_all(_QUIET_S)
        paths = [sending(peer) for peer in peers]
        if [Counter(path.path for path in those) for those in paths] != [
            {port: QUEUE_PAIRS} for port in sports
        ]:
            raise LabError("not all queue pairs take the path that the table has", "Run it again.")
        yield ends, peers, paths


def _table(source: RdmaHost, target: RdmaHost, sport: int) -> bytes:
    here, there = (address_gid(str(host.ipv4)) for host in (source, target))
    sources = [Source(source.device, 1, source.gid_index(4), here)]
    return shimwire.pack(1, sources, [Route(here, there, ((sport, 1.0),))])


def _await_connected(ends: Sequence[Told]) -> None:
    if any(end.answer() != [QUEUE_PAIRS] for end in ends):
        raise LabError("not all queue pairs are connected", "Run it again.")


def _written(ends: Sequence[Told], bench: Bench) -> dict[str, Any]:
    """Have both ends write a message over each queue pair; what was counted meanwhile."""
    with recorded(bench) as record:
        record["messages"] = [count for (count,) in ask(ends, "write")]
    return record


def _moved(peers: Sequence[Peer], paths: Sequence[Sequence[QpPath]], sports: Sequence[int]) -> Round:
    """Order all to take other ports."""
    deadline_ns = time.monotonic_ns() + DEADLINE_NS
    orders = {
        peer.connection: [
            shimwire.move(path.device, path.qpn, number, deadline_ns, sport, with_sqd=True)
            for number, path in enumerate(those)
        ]
        for peer, those, sport in zip(peers, paths, sports, strict=True)
    }
    began_ns = time.monotonic_ns()
    answers = carried_out(orders)
    return Round(
        [(at_ns - began_ns) / 1e6 for at_ns, one in answers if not one.error],
        [one.took_ns / 1e3 for _, one in answers if not one.error],
        Counter(one.error for _, one in answers),
    )


def carried_out(orders: Mapping[socket.socket, Sequence[bytes]]) -> list[tuple[int, Moved]]:
    """Give programs orders; their answers, and when each came, CLOCK_MONOTONIC ns.

    Raises:
        LabError: they stop answering.
    """
    unsent = {connection: deque(those) for connection, those in orders.items()}
    answers: list[tuple[int, Moved]] = []
    while len(answers) < sum(map(len, orders.values())):
        owed = [connection for connection, those in unsent.items() if those]
        readable, writable, _ = select.select(list(orders), owed, [], _ANSWER_S)
        if not readable and not writable:
            raise LabError(f"only {len(answers)} orders are answered", "Run it again.")
        for connection in writable:
            connection.send(unsent[connection].popleft())
        for connection in readable:
            message = shimwire.read(connection.recv(shimwire.MOST_BYTES))
            if isinstance(message, Moved):
                answers.append((time.monotonic_ns(), message))
    return answers


def together(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians of the rounds' percentiles, and the longest of all."""
    errors = sum((one.errors for one in rounds), Counter[int]())
    return {
        "ordered": errors.total(),
        "errors": {str(error): count for error, count in errors.items()},
        "done_ms": _quantiles([one.done_ms for one in rounds if one.done_ms]),
        "each_us": _quantiles([one.each_us for one in rounds if one.each_us]),
    }


def _quantiles(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    if not rounds:
        return {}
    p50, p99 = np.median([np.quantile(one, [0.5, 0.99]) for one in rounds], axis=0)
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(max(map(max, rounds)), 1)}
