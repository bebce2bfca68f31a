"""Moving the queue pairs of a transfer from path to path while it runs."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cwdp.dataplane import abi
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import SPORT_MAX, QpKey, Steer, Steering
from cwdp.errors import LabError
from cwdp.rdma import netlink
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.programs import Running

_INTERVAL_S = 0.01
_CONNECTED = ("RTR", "RTS")  # an end that sends nothing of its own may stay at the first
_CONNECT_TIMEOUT_S = 120.0


class Mover:
    """Steers both directions of a transfer. Made by `mover`."""

    def __init__(self, directions: list[tuple[Steering, QpKey]], version: int) -> None:
        self._directions = directions
        self._flow_label = version == 6

    def move(self, sport: int, backup_sport: int | None = None) -> None:
        """Send both directions from another source port."""
        for steering, key in self._directions:
            steering.set(key, Steer(sport, backup_sport, self._flow_label))

    def move_while(self, running: Running, draw: random.Random) -> int:
        """Move to one random port after another until a transfer has ended; return how often, of each direction."""
        moves, sport = 0, 0
        while running.is_running():
            sport = another_port(draw, sport)
            self.move(sport)
            moves += 1
            time.sleep(_INTERVAL_S)
        return moves

    def let_go(self) -> None:
        """Leave both directions to their own source ports."""
        for steering, key in self._directions:
            if steering.get(key) is not None:
                steering.unset(key)


@contextmanager
def mover(running: Running, source: RdmaHost, target: RdmaHost, version: int) -> Iterator[Mover]:
    """Wait until a transfer's queue pairs are connected, and be ready to steer them.

    Raises:
        LabError: they never were.
    """
    ends = ((source, target), (target, source))
    keys = _await_keys(running, ends, version)
    with ExitStack() as stack:
        stack.enter_context(tree.locked())
        maps = [stack.enter_context(Maps(tree.here(host.ifname))) for host, _ in ends]
        made = Mover([(Steering(each), key) for each, key in zip(maps, keys, strict=True)], version)
        stack.callback(made.let_go)
        yield made


def _await_keys(running: Running, ends: tuple[tuple[RdmaHost, RdmaHost], ...], version: int) -> list[QpKey]:
    """Return what names each direction: the peer's address and queue pair number."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT_S
    while running.is_running() and time.monotonic() < deadline:
        peers = {
            qp.device: qp.rqpn for qp in netlink.queue_pairs() if qp.type == "RC" and qp.state in _CONNECTED
        }
        keys = [
            QpKey(peer.address(version), rqpn)
            for host, peer in ends
            if (rqpn := peers.get(host.device)) is not None
        ]
        if len(keys) == len(ends):
            return keys
    raise LabError("the queue pairs of the transfer were never connected", running.finish().client_output)


def another_port(draw: random.Random, sport: int) -> int:
    """Draw a source port of RoCEv2's range that is not `sport`."""
    drawn = draw.randint(abi.SPORT_MIN, SPORT_MAX)
    return drawn if drawn != sport else another_port(draw, sport)
