"""Heat maps: a byte a cell on a logarithmic scale, so that a thousand rows travel in a megabyte. Pure.

Code 0 is what was not measured, 1 what is below the scale (0 included), k >= 2 is `lowest * ratio ** (k - 2)`.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from manager.view.json_values import Json

Metric = Literal["spread", "p50", "loss", "load"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MOST_ROWS = 1_024
WORST = 50
TOP_CODE = 255
FIRST_CODE = 2

Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Scale:
    """What codes mean."""

    unit: Literal["ns", "ratio", "bps"]
    lowest: float
    ratio: float

    def codes(self, values: Floats) -> Codes:
        """Codes of values, NaN for what was not measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.round(np.log(values / self.lowest) / np.log(self.ratio)) + FIRST_CODE
        codes = np.where(values < self.lowest, 1.0, np.clip(steps, FIRST_CODE, TOP_CODE))
        return np.where(np.isfinite(values), codes, 0.0).astype(np.uint8)

    def as_json(self) -> Json:
        """For who reads codes."""
        return {"unit": self.unit, "lowest": self.lowest, "ratio": self.ratio}


SCALES: dict[Metric, Scale] = {
    "spread": Scale("ns", 10.0, 1.08),
    "p50": Scale("ns", 10.0, 1.08),
    "loss": Scale("ratio", 1e-5, 1.05),
    "load": Scale("bps", 1e3, 1.1),
}


@dataclass(frozen=True, eq=False)
class Matrix:
    """One metric of all pairs.

    Attributes:
        metric: which.
        names: of the rows, which are sources, and of the columns.
        members: what each row stands for, where it is several.
        codes: shape (rows, rows).
        worst: the largest values, with their names.
    """

    metric: Metric
    names: Sequence[str]
    members: Sequence[Sequence[str]] | None
    codes: Codes
    worst: Sequence[Json]

    def as_json(self) -> Json:
        """The whole."""
        return {
            "metric": self.metric,
            **SCALES[self.metric].as_json(),
            "names": list(self.names),
            "members": self.members,
            "codes": as_text(self.codes),
            "worst": list(self.worst),
        }

    def since(self, before: "Matrix") -> Json | None:
        """What has changed since an earlier one; None where rows are others."""
        if self.names != before.names or self.members != before.members:
            return None
        cells = np.flatnonzero(self.codes.ravel() != before.codes.ravel())
        changed = as_text(self.codes.ravel()[cells])
        return {
            "metric": self.metric,
            "cells": cells.tolist(),
            "codes": changed,
            "worst": list(self.worst),
        }


def matrix(
    metric: Metric, names: Sequence[str], src: NDArray[np.intp], dst: NDArray[np.intp], values: Floats
) -> Matrix:
    """The heat map of a metric.

    Args:
        metric: which.
        names: of all rows, in order.
        src: the row of each pair that was measured, shape (pairs,).
        dst: its column.
        values: of each, NaN for unknown.
    """
    size = -(-len(names) // MOST_ROWS) or 1
    count = -(-len(names) // size)
    largest = np.full((count, count), np.nan)
    np.fmax.at(largest, (src // size, dst // size), values)
    known = np.flatnonzero(np.isfinite(values))
    top = known[np.argsort(-values[known], kind="stable")[:WORST]]
    worst = [
        {"src": names[src[i]], "dst": names[dst[i]], "value": round(float(values[i]), 6)}
        for i in top.tolist()
    ]
    members = None if size == 1 else [list(names[i : i + size]) for i in range(0, len(names), size)]
    shown = list(names) if members is None else [f"{row[0]} .. {row[-1]}" for row in members]
    return Matrix(metric, shown, members, SCALES[metric].codes(largest), worst)


def as_text(codes: Codes) -> str:
    """Codes as they travel in JSON."""
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")
