"""Tells when a NIC has failed and when it is well again. The dataplane acts by itself; this says why it did."""

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import PathState

NIC_DEAD_FACTOR = 3
"""As in `bpf/steering/detour.h`: a NIC is given up for another after so many times the silence of a dead path."""

Told = tuple[str, Literal["nic_failed", "nic_healed"], str]
"""The NIC, what became of it, and why."""


class NicWatch:
    """The NICs of a host that stand in for each other.

    A NIC has failed when it has no carrier, or when none of its watched paths answers, those in reserve included,
    while some of its partner's does; so the death of a NIC at the far end, or of the only host that is talked to, is
    not this NIC's. It is well again when one of its paths is trusted by the dataplane again.

    Args:
        partners: the NIC that stands in for each.
    """

    def __init__(self, partners: Mapping[str, str]) -> None:
        self._partners = partners
        self._failed: set[str] = set()

    def look(
        self,
        paths: Mapping[str, NDArray[np.void]],
        carriers: Mapping[str, bool],
        now_local_ns: int,
        dead_after_ns: int,
    ) -> Iterator[Told]:
        """What is new.

        Args:
            paths: the watched paths of each NIC that has a dataplane, dtype `abi.PATH`.
            carriers: whether each NIC has carrier.
            now_local_ns: on the clock that the paths' times are of.
            dead_after_ns: the silence after which a path is dead.
        """
        nic_dead_after_ns = dead_after_ns * NIC_DEAD_FACTOR
        alive = {ifname: _alive(table, now_local_ns, nic_dead_after_ns) for ifname, table in paths.items()}
        for ifname, partner in self._partners.items():
            if ifname not in alive or partner not in alive:
                continue
            mine = alive[ifname]
            is_silent = len(mine) > 0 and not mine.any()
            if ifname in self._failed:
                if carriers[ifname] and not is_silent:
                    self._failed.discard(ifname)
                    yield (
                        ifname,
                        "nic_healed",
                        f"{np.count_nonzero(mine)} of {len(mine)} paths are alive again",
                    )
            elif not carriers[ifname] and carriers[partner]:
                self._failed.add(ifname)
                yield ifname, "nic_failed", f"no carrier; its queue pairs leave by {partner}"
            elif is_silent and alive[partner].any():
                self._failed.add(ifname)
                yield (
                    ifname,
                    "nic_failed",
                    f"none of {len(mine)} paths answers; its queue pairs leave by {partner}",
                )


def _alive(table: NDArray[np.void], now_local_ns: int, dead_after_ns: int) -> NDArray[np.bool_]:
    """Whether each watched path of a NIC is alive."""
    return is_alive(table[(table["users"] > 0) | (table["detours"] > 0)], now_local_ns, dead_after_ns)


def is_alive(paths: NDArray[np.void], now_local_ns: int, dead_after_ns: int) -> NDArray[np.bool_]:
    """Whether paths are trusted and have not been silent for so long; the same shape."""
    waiting = paths["waiting_since_ns"] > paths["last_answer_ns"]
    silent_ns = np.where(waiting, np.int64(now_local_ns) - paths["waiting_since_ns"].astype(np.int64), 0)
    answered = paths["last_answer_ns"] > 0
    alive: NDArray[np.bool_] = (paths["state"] == PathState.UP) & answered & (silent_ns <= dead_after_ns)
    return alive
