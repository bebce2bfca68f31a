"""Measurements in few bits: codes that are even on a logarithmic scale, several to a cell of 48 bits. Pure.

Code 0 is unknown, so that what was never written reads as unknown; code 1 is all below the least value, 0 included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

CELL_BYTES = 6
UNKNOWN, BELOW = 0, 1

Floats = NDArray[np.float64]
Cells = NDArray[np.uint64]


@dataclass(frozen=True)
class Field:
    """One measurement of a cell.

    Attributes:
        name: with its unit.
        bits: of its code.
        least, most: values are clipped to this; less than the least reads as 0.
    """

    name: str
    bits: int
    least: float
    most: float

    @property
    def largest(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    @cached_property
    def ratio(self) -> float:
        """Between the values of two codes that follow each other; half of what is over 1 is the largest error."""
        return float((self.most / self.least) ** (1.0 / (self.largest - BELOW - 1)))

    def encode(self, values: Floats) -> Cells:
        """Codes of values, NaN for unknown; any shape."""
        known = np.isfinite(values)
        clipped = np.clip(np.where(known, values, self.least), self.least, self.most)
        steps = np.rint(np.log(clipped / self.least) / np.log(self.ratio))
        codes = np.where(values < self.least, float(BELOW), steps + BELOW + 1)
        return np.where(known, codes, float(UNKNOWN)).astype(np.uint64)

    def decode(self, codes: Cells) -> Floats:
        """Values of codes, NaN for unknown; any shape."""
        values = self.least * self.ratio ** (codes.astype(np.float64) - BELOW - 1)
        values = np.where(codes == BELOW, 0.0, values)
        return np.where(codes == UNKNOWN, np.nan, values)


QUEUE_P50 = Field("queue_p50_ns", 13, 1.0, 1e10)
QUEUE_P99 = Field("queue_p99_ns", 13, 1.0, 1e10)
LOAD = Field("load_bps", 14, 1.0, 1e13)
LOSS = Field("loss", 8, 1e-6, 1.0)
OWD_MIN = Field("owd_min_ns", 13, 1.0, 1e10)
OWD_P50 = Field("owd_p50_ns", 13, 1.0, 1e10)
OWD_P99 = Field("owd_p99_ns", 13, 1.0, 1e10)

LINK_FIELDS = (QUEUE_P50, QUEUE_P99, LOAD, LOSS)
PAIR_FIELDS = (OWD_P50, OWD_P99, OWD_MIN, LOSS)


def pack(fields: Sequence[Field], values: Mapping[str, Floats]) -> Cells:
    """One cell for each place of the values' arrays, which have one shape."""
    shape = values[fields[0].name].shape
    cells, shift = np.zeros(shape, np.uint64), 0
    for field in fields:
        cells |= field.encode(values[field.name]) << np.uint64(shift)
        shift += field.bits
    assert shift <= 8 * CELL_BYTES
    return cells


def unpack(fields: Sequence[Field], cells: Cells) -> dict[str, Floats]:
    """The values of cells, by the fields' names; arrays of the cells' shape."""
    values, shift = {}, 0
    for field in fields:
        codes = (cells >> np.uint64(shift)) & np.uint64(field.largest)
        values[field.name] = field.decode(codes)
        shift += field.bits
    return values


def to_bytes(cells: Cells) -> bytes:
    """Little-endian, `CELL_BYTES` each; shape (cells,)."""
    return cells.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :CELL_BYTES].tobytes()


def from_bytes(data: bytes) -> Cells:
    """What `to_bytes` made; shape (cells,)."""
    wide = np.zeros((len(data) // CELL_BYTES, 8), np.uint8)
    wide[:, :CELL_BYTES] = np.frombuffer(data, np.uint8).reshape(-1, CELL_BYTES)
    return wide.reshape(-1).view("<u8").astype(np.uint64)


def merged(fields: Sequence[Field], values: Mapping[str, Floats]) -> dict[str, Floats]:
    """Several spans as one: the largest of 99th percentiles, the least of minima, the mean of all else.

    Args:
        fields: which.
        values: shape (spans, ...), NaN for unknown.

    Returns:
        The same without the first axis; NaN where no span is known.
    """
    return {field.name: _merge(field.name, values[field.name]) for field in fields}


def _merge(name: str, values: Floats) -> Floats:
    if "p99" in name:
        return np.asarray(np.fmax.reduce(values, axis=0), np.float64)
    if "min" in name:
        return np.asarray(np.fmin.reduce(values, axis=0), np.float64)
    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean
