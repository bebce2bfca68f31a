"""One-way delays of watched paths, by the answers to their pulses. No I/O: it reads what the dataplane has written."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import SlotState
from cwdp.dataplane.steering.pathtable import PathKey
from cwdp.shared.tcp import PulseDelay

WINDOW_NS = 1_000_000_000
"""Of pulses, which are 20,000 a second at most: their slots are not taken again before."""

_STATE_MASK = np.uint64(0xFFFFFFFF)


def path_delays(
    slots: NDArray[np.void], paths: NDArray[np.void], wanted: Collection[PathKey], now_local_ns: int
) -> dict[PathKey, PulseDelay]:
    """The delays from here to the far end of paths of which pulses have been answered of late, with both clocks synced.

    Args:
        slots: of probes and pulses, shape (SLOTS + PULSE_SLOTS,), dtype `abi.SLOT`.
        paths: shape (PATHS,), dtype `abi.PATH`.
        wanted: of which paths.
        now_local_ns: local time, which slots are stamped with.
    """
    if not wanted:
        return {}
    numbers = _numbers(paths, wanted)
    pulses = slots[abi.SLOTS :]
    done = pulses[pulses["tag"] & _STATE_MASK == SlotState.DONE]  # a copy: slots may be taken again meanwhile
    is_new = done["t4"].astype(np.int64) > now_local_ns - WINDOW_NS
    is_synced = done["bound_ns"] != abi.BOUND_UNSYNCED
    done = done[is_new & is_synced & np.isin(done["path"], list(numbers))]
    if not len(done):
        return {}
    done = done[np.lexsort((done["fwd_owd_ns"], done["path"]))]
    found, first, count = np.unique(done["path"], return_index=True, return_counts=True)
    columns = (
        count.tolist(),
        done["fwd_owd_ns"][first].tolist(),
        done["fwd_owd_ns"][first + count // 2].tolist(),
        np.maximum.reduceat(done["bound_ns"], first).tolist(),
    )
    return {
        numbers[number]: PulseDelay(pulses=pulse_count, min_ns=least, p50_ns=median, bound_ns=bound)
        for number, pulse_count, least, median, bound in zip(found.tolist(), *columns, strict=True)
    }


def _numbers(paths: NDArray[np.void], wanted: Collection[PathKey]) -> dict[int, PathKey]:
    """The paths by their numbers, of those that are watched."""
    used = np.flatnonzero(paths["users"] > 0)
    keys = (
        PathKey(paths["dst"][number].tobytes(), int(paths["sport"][number]), int(paths["protocol"][number]))
        for number in used.tolist()
    )
    return {number: key for number, key in zip(used.tolist(), keys, strict=True) if key in wanted}
