"""Which number each watched path has in the map `paths`, found without looking through the map for each."""

from collections import deque
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState
from cwdp.errors import SteeringError


class PathKey(NamedTuple):
    """Names a path.

    Attributes:
        dst: 16 bytes in network order, IPv4 as ::ffff:a.b.c.d.
        sport: source port.
        protocol: IPPROTO_TCP; 0 for UDP as RoCEv2 has it.
    """

    dst: bytes
    sport: int
    protocol: int = 0


class PathTable:
    """The paths as they were when this was made. Whoever changes them holds `tree.locked()` from then on.

    Args:
        paths: shape (PATHS,), dtype `abi.PATH`, shared with the dataplane; it stays the caller's. Number 0 is no path.
    """

    def __init__(self, paths: NDArray[np.void]) -> None:
        self._paths = paths
        self._users, self._primaries, self._detours = paths["users"], paths["primaries"], paths["detours"]
        used = np.flatnonzero((self._users > 0) | (self._detours > 0))
        dsts = np.ascontiguousarray(paths["dst"][used]).tobytes()
        sports, protocols = paths["sport"][used].tolist(), paths["protocol"][used].tolist()
        self._numbers: dict[PathKey, int] = {
            PathKey(dsts[16 * i : 16 * i + 16], sports[i], protocols[i]): number
            for i, number in enumerate(used.tolist())
        }

    def state(self, key: PathKey) -> PathState:
        """Whether a path is down; one that is not watched is taken to be up."""
        number = self._numbers.get(key)
        return PathState.UP if number is None else PathState(int(self._paths["state"][number]))

    def use(self, keys: list[PathKey]) -> list[int]:
        """Have one user more of these paths, which are watched from now on; the first one is its primary.

        Raises:
            SteeringError: there is no room for them; nothing was changed.
        """
        numbers = self._numbers_of(keys)
        for number in numbers:
            self._users[number] += 1
        self._primaries[numbers[0]] += 1
        return numbers

    def leave(self, keys: list[PathKey]) -> None:
        """Have the user of these paths, the primary first, be gone; the last one's are not watched any more."""
        for place, key in enumerate(keys):
            number = self._numbers.get(key)
            if number is None:
                continue
            self._users[number] -= 1
            self._primaries[number] -= place == 0
            if not self._users[number] and not self._detours[number]:
                self._free.append(number)
                del self._numbers[key]

    def recount(self, users: list[list[PathKey]]) -> None:
        """Have exactly these users, each with its paths, the primary first."""
        self._users[:] = self._counts([key for keys in users for key in keys])
        self._primaries[:] = self._counts([keys[0] for keys in users])

    def use_in_detour(self, keys: list[PathKey]) -> list[int]:
        """Have each of these paths be part of one detour more. Raises what `use` does."""
        numbers = self._numbers_of(keys)
        for number in numbers:
            self._detours[number] += 1
        return numbers

    @cached_property
    def _free(self) -> deque[int]:
        """Numbers that no path has, those that were given back at the end."""
        taken = np.zeros(len(self._users), dtype=bool)
        taken[[0, *self._numbers.values()]] = True
        return deque(np.flatnonzero(~taken).tolist())

    def _counts(self, keys: list[PathKey]) -> NDArray[np.intp]:
        """How often each path is among these; shape (PATHS,)."""
        numbers = np.array([self._number(key) for key in keys], dtype=np.intp)
        return np.bincount(numbers, minlength=len(self._users))

    def _numbers_of(self, keys: list[PathKey]) -> list[int]:
        """The numbers of paths, of all or of none."""
        missing = len({key for key in keys if key not in self._numbers})
        if missing and missing > len(self._free):
            raise SteeringError(
                f"{abi.PATHS - 1} paths are watched already, no more fit",
                "use fewer source ports a destination",
            )
        return [self._number(key) for key in keys]

    def _number(self, key: PathKey) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._free.popleft()
            record = np.zeros((), dtype=abi.PATH)
            record["dst"], record["sport"] = np.frombuffer(key.dst, dtype=">u4"), key.sport
            record["protocol"] = key.protocol
            self._paths[number] = record
            self._numbers[key] = number
        return number
