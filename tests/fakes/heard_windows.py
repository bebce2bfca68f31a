"""Windows of probes as the manager hears them: by messages that tell their paths, or not."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import WindowReport, host_of
from cwdp.shared.bus.records import WINDOW_ROW
from cwdp.shared.bus.windows import MEASURED, window_report
from manager.paths.told import ToldPaths
from manager.paths.windows import WindowStore


def hear_windows(store: WindowStore, nics: Sequence[str], rows: NDArray[np.void], now: int) -> None:
    """Have a store take in WINDOW_ROWs of NICs of one host, by their fabric-wide names, in a message that tells its paths."""
    report = window_report(host_of(nics[0]), [nic.rpartition("/")[2] for nic in nics], rows)
    told = ToldPaths().read(report)
    assert told is not None
    store.hear(*told, now)


def whole_rows(told: ToldPaths, report: WindowReport) -> NDArray[np.void] | None:
    """A report's WINDOW_ROWs; None where its table is not known."""
    read = told.read(report)
    if read is None:
        return None
    table, placed = read
    rows = np.zeros(len(placed), WINDOW_ROW)
    for name in ("nic", "dst_addr", "sport", "reply_sport"):
        rows[name] = table.paths[name][placed["path"]]
    for name in MEASURED:
        rows[name] = placed[name]
    return rows
