"""Fits and statistics of paths come through a message as they went in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cwdp.shared.bus.edges import (
    DELAYS,
    FIT_ROW,
    FLAGS,
    FLOATS,
    NEVER_NS,
    NO_BOUND_NS,
    PATH_ROW,
    EdgeFit,
    EdgeRows,
    PathStat,
    fit_rows,
    path_rows,
)
from cwdp.shared.bus.messages import decode, encode
from cwdp.shared.bus.records import NO_DELAY_NS


@dataclass
class Draw:
    """Draws what agents might say."""

    rng: np.random.Generator

    def fit(self, src: int, dst: int) -> EdgeFit:
        """Any fit."""
        numbers: dict[str, Any] = {name: float(self.rng.normal(0, 1e6)) for name in FLOATS}
        flags: dict[str, Any] = {name: bool(self.rng.integers(0, 2)) for name in FLAGS}
        times = self.rng.integers(-(2**62), 2**62, 3).tolist()
        return EdgeFit(
            src=f"h{src}/nic0",
            dst=f"h{dst}/nic1",
            ref_local_ns=times[0],
            offset_base_ns=times[1],
            since_local_ns=times[2] if self.rng.random() < 0.5 else None,
            **numbers,
            **flags,
        )

    def stat(self, src: int, dst: int) -> PathStat:
        """Any path."""
        delays: dict[str, Any] = {
            name: int(self.rng.integers(-(2**31) + 1, 2**31)) if self.rng.random() < 0.8 else None
            for name in DELAYS
        }
        return PathStat(
            src=f"h{src}/nic0",
            dst=f"h{dst}/nic1",
            sport=int(self.rng.integers(1, 2**16)),
            reply_sport=int(self.rng.integers(1, 2**16)),
            sent=9,
            lost=2,
            queued=1,
            bound_ns=40 if self.rng.random() < 0.5 else None,
            **delays,
        )


@pytest.mark.parametrize("seed", range(5))
def test_rows_say_what_was_measured(seed: int) -> None:
    draw = Draw(np.random.default_rng(seed))
    ends = [(int(a), int(b)) for a, b in draw.rng.integers(0, 5, (20, 2))]
    fits, stats = [draw.fit(*each) for each in ends], [draw.stat(*each) for each in ends]
    for measured, rows, dtype, nothing in (
        (fits, fit_rows(fits), FIT_ROW, {"since_local_ns": NEVER_NS}),
        (stats, path_rows(stats), PATH_ROW, dict.fromkeys(DELAYS, NO_DELAY_NS) | {"bound_ns": NO_BOUND_NS}),
    ):
        told = decode(EdgeRows, encode(rows))
        for one, row in zip(measured, told.read(dtype), strict=True):
            assert (told.srcs[row["src"]], told.dsts[row["dst"]]) == (one.src, one.dst)
            for name in (dtype.names or ())[2:]:
                value = getattr(one, name)
                assert row[name] == (nothing[name] if value is None else value)


@pytest.mark.parametrize("rows", [b"x", bytes(FIT_ROW.itemsize), b"\xff" * FIT_ROW.itemsize])
def test_rows_of_nics_that_are_not_named_and_broken_ones_are_refused(rows: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        EdgeRows(srcs=[], dsts=["b/nic0"], rows=rows).read(FIT_ROW)
