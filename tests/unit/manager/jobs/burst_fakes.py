"""Bursts of flows as the manager has them, from when they began and ended."""

from collections.abc import Mapping, Sequence

import numpy as np

from cwdp.shared.bus.records import BURST_ROW
from manager.jobs.flows import COLUMNS, BurstColumns, Flow, FlowBursts, Told

MS = 1_000_000


def bursts(spans_ms: Sequence[tuple[float, float]], size: int = 10**6) -> BurstColumns:
    """From and to on the timeline."""
    rows = np.zeros(len(spans_ms), BURST_ROW)
    rows["start_ns"], rows["end_ns"] = np.rint(np.array(spans_ms).reshape(-1, 2).T * MS)
    rows["bytes"] = size
    return BurstColumns(*(rows[name].copy() for name in COLUMNS))


def flow_bursts(spans_ms: Mapping[Flow, Sequence[tuple[float, float]]]) -> FlowBursts:
    """Of flows of which both ends tell the same."""
    firsts = np.cumsum([0, *map(len, spans_ms.values())])
    told = Told(bursts([span for spans in spans_ms.values() for span in spans]), firsts)
    return FlowBursts(list(spans_ms), told, told)
