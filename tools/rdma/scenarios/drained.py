"""Queue pairs that the verbs shim moves while they send, by draining their send queues: nothing gets lost.

Each end's shim is ordered to and fro by an agent of ours; nothing is steered by a dataplane.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cwdp.errors import LabError
from cwdp.rdma.shimwire import RTS, QpPath, QpState
from tools.rdma.scenarios.moves import another_port
from tools.rdma.scenarios.scenario import Bench, Scenario, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.programs import Running, Transfer, started
from tools.rdma.testbed.shimmed import with_shim
from tools.shim import FakeAgent
from tools.shim.agent import Peer
from tools.waiting import wait_for

DRAINED = {
    "as_nccl": Transfer("as_nccl", 4, messages=256),
}

_SEED = 16
_START_S = 180.0
_HEARD_S = 0.2


def plan() -> Iterator[tuple[str, Scenario]]:
    """Yield every scenario with its name."""
    for name, transfer in DRAINED.items():
        yield f"shim: moves of {name}", partial(run_moves, transfer)


def run_moves(transfer: Transfer, bench: Bench) -> dict[str, Any]:
    """Move every end that sends from port to port until the transfer has ended."""
    hosts = bench.source, bench.target
    with recorded(bench) as record, _begun(transfer, hosts) as (running, peers):
        record.update(_move_while(running, peers))
        record.update(asdict(running.finish()))
    return record


@contextmanager
def _begun(transfer: Transfer, hosts: tuple[RdmaHost, RdmaHost]) -> Iterator[tuple[Running, list[Peer]]]:
    """A transfer whose ends have loaded the shim, and the shims as agents of ours see them, the client's first."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def socket(host: RdmaHost) -> Path:
            return folder / f"{host.name}.sock"

        agents = [stack.enter_context(FakeAgent(socket(host))) for host in hosts]
        running = stack.enter_context(started(transfer, *hosts, with_shim(transfer.program, socket)))
        yield running, [agent.accept(_START_S) for agent in agents]


def _move_while(running: Running, peers: list[Peer]) -> dict[str, Any]:
    """Move what sends until it ends; how often, what came of it, and how long each took, ms."""
    draw, sport = random.Random(_SEED), 0
    outcomes: Counter[int] = Counter()
    took_ms: list[float] = []
    _await_sender(running, peers)
    while running.is_running():
        sport = another_port(draw, sport)
        for peer, path in [(peer, path) for peer in peers if (path := _sends(peer)) is not None]:
            try:
                moved = peer.move(path.device, path.qpn, sport, with_sqd=True)
            except (TimeoutError, OSError):  # it has ended
                return _told(outcomes, took_ms)
            outcomes[moved.error] += 1
            took_ms += [] if moved.error else [moved.took_ns / 1e6]
    return _told(outcomes, took_ms)


def _told(outcomes: Counter[int], took_ms: list[float]) -> dict[str, Any]:
    return {"moves": len(took_ms), "errors": dict(outcomes), "took_ms": sorted(took_ms)}


def _await_sender(running: Running, peers: list[Peer]) -> None:
    """Wait until the client's queue pair sends.

    Raises:
        LabError: it does not.
    """
    sender = peers[0]
    wait_for(lambda: _sends(sender) is not None or not running.is_running(), _START_S, poll_s=_HEARD_S)
    if _sends(sender) is None:
        raise LabError("the queue pairs of the transfer were never connected", running.finish().client_output)


def _sends(peer: Peer) -> QpPath | None:
    """The queue pair of a program that is in RTS, as far as it has told."""
    return next(iter(sending(peer)), None)


def sending(peer: Peer) -> list[QpPath]:
    """Those of a program."""
    while peer.hear(0) is not None:
        pass
    found: dict[int, QpPath] = {}
    for message in peer.heard:
        if isinstance(message, QpPath):
            found[message.qpn] = message
        elif isinstance(message, QpState) and message.qpn in found:
            found[message.qpn] = found[message.qpn]._replace(state=message.state)
    return [path for path in found.values() if path.state == RTS]
