"""The paths of busy queue pairs, watched so that pulses tell their delay; those steered over are watched anyway."""

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.pathtable import PathKey, PathTable
from cwdp.dataplane.steering.steering import Steering
from cwdp.dataplane.steering.tcp import TcpSteering
from cwdp.errors import SteeringError

KEPT_NS = 60_000_000_000
"""A path that was busy is watched for so long after, so that the next burst is seen from its beginning."""

MOST_WATCHED = 256
NOT_WATCHED = 0


class PathWatch:
    """Finds the path of each queue pair of an interface, and has it watched where nobody does.

    What it has had watched stays so when it ends, until paths are counted anew: by the next one, or by the agent.

    Args:
        maps: the interface's open maps; they stay the caller's.

    Attributes:
        refused: busy paths that could not be watched, too many being watched already.
    """

    def __init__(self, maps: Maps) -> None:
        self._pairs, self._paths = maps.qps[Direction.EGRESS], maps.paths
        self._numbers: dict[PathKey, int] = {}
        self._own: dict[PathKey, int] = {}
        self.refused = 0
        with tree.locked():
            Steering(maps).recount(TcpSteering(maps).users())

    def find(self, rows: NDArray[np.intp], now_ns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Look the paths of queue pairs up, and watch those that are not watched.

        Args:
            rows: of the table of queue pairs by egress.
            now_ns: CLOCK_MONOTONIC.

        Returns:
            The number of each one's path, NOT_WATCHED where it has none, shape (rows,); numbers that stand for another
            path than at the call before, shape (changed,).
        """
        before, self._numbers = self._numbers, self._watched()
        keys = _keys(self._pairs["key"]["addr"][rows], self._pairs["used_sport"][rows])
        missing = {key for key in keys if key not in self._numbers}
        self._own.update((key, now_ns) for key in keys if key in self._own or key in missing)
        old = [key for key, used_ns in self._own.items() if now_ns - used_ns > KEPT_NS]
        if missing or old:
            self._change(missing, old)
            self._numbers = self._watched()
        changed = [n for key, n in self._numbers.items() if before.get(key) != n]
        numbers = [self._numbers.get(key, NOT_WATCHED) for key in keys]
        return np.array(numbers, dtype=np.intp), np.array(changed, dtype=np.intp)

    def _watched(self) -> dict[PathKey, int]:
        numbers = np.flatnonzero(self._paths["users"])
        keys = _keys(self._paths["dst"][numbers], self._paths["sport"][numbers])
        return dict(zip(keys, numbers.tolist(), strict=True))

    def _change(self, missing: set[PathKey], old: list[PathKey]) -> None:
        with tree.locked():
            table = PathTable(self._paths)
            for key in old:
                del self._own[key]
                table.leave([key])
            for key in sorted(missing):
                try:
                    self._watch(table, key)
                except SteeringError:
                    del self._own[key]
                    self.refused += 1

    def _watch(self, table: PathTable, key: PathKey) -> None:
        if len(self._own) > MOST_WATCHED:
            raise SteeringError(
                f"{MOST_WATCHED} paths are watched for congestion", "those that rest are let go of"
            )
        table.use([key])


def _keys(addresses: NDArray[np.uint32], sports: NDArray[np.uint16]) -> list[PathKey]:
    return [
        PathKey(address.tobytes(), sport) for address, sport in zip(addresses, sports.tolist(), strict=True)
    ]
